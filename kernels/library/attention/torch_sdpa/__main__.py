"""``python -m mla_var3.kernel.library.attention.torch_sdpa [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="torch_sdpa", language="library")
