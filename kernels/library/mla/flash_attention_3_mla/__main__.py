"""``python -m mla_var3.kernel.library.mla.flash_attention_3_mla [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="flash_attention_3_mla", language="library")
