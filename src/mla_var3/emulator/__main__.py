"""``python -m mla_var3.emulator``: run scripts written for a GPU without one."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.emulator.commands:main")
