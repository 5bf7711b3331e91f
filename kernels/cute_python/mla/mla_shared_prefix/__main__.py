"""``python -m mla_var3.kernel.cute_python.mla.mla_shared_prefix [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="mla_shared_prefix", language="cute-dsl")
