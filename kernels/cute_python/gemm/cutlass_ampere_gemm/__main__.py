"""``python -m mla_var3.kernel.cute_python.gemm.cutlass_ampere_gemm [V]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="cutlass_ampere_gemm", language="cute-dsl")
