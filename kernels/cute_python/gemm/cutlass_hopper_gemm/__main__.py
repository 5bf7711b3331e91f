"""``python -m mla_var3.kernel.cute_python.gemm.cutlass_hopper_gemm [V]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="cutlass_hopper_gemm", language="cute-dsl")
