"""``python -m mla_var3.kernel.cutile.gemm.gemm [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="gemm", language="cutile-dsl")
