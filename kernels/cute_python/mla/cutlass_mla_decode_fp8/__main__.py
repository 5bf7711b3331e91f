"""``python -m mla_var3.kernel.cute_python.mla.cutlass_mla_decode_fp8 [V]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="cutlass_mla_decode_fp8", language="cute-dsl")
