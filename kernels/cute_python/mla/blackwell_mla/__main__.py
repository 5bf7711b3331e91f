"""``python -m mla_var3.kernel.cute_python.mla.blackwell_mla [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="blackwell_mla", language="cute-dsl")
