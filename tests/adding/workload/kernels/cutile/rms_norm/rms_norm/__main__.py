"""``python -m mla_var3.kernel.cutile.rms_norm.rms_norm [V] [flags]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="rms_norm", language="cutile-dsl")
