"""``python -m mla_var3.kernel.cute_python.mla.mla_var6_plus [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="mla_var6_plus", language="cute-dsl")
