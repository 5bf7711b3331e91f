"""``python -m mla_var3.kernel.cutile.mla.flash_mla_fp8 [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="flash_mla_fp8", language="cutile-dsl")
