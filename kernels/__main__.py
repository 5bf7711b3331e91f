"""``python -m mla_var3.kernel D [V] [flags]``: check, compile, profile or time any version."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main")
