"""``python -m mla_var3.kernel.cute_python.mla.cutlass_mla_decode [V]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="cutlass_mla_decode", language="cute-dsl")
