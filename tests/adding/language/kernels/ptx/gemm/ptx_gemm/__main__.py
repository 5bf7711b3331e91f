"""``python -m mla_var3.kernel.ptx.gemm.ptx_gemm [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="ptx_gemm", language="ptx")
