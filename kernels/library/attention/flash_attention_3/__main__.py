"""``python -m mla_var3.kernel.library.attention.flash_attention_3 [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="flash_attention_3", language="library")
