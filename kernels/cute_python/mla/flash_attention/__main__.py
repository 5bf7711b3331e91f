"""``python -m mla_var3.kernel.cute_python.mla.flash_attention [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="flash_attention", language="cute-dsl")
