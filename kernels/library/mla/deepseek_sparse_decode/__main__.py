"""``python -m mla_var3.kernel.library.mla.deepseek_sparse_decode [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="deepseek_sparse_decode", language="library")
