"""``python -m mla_var3.emulator``: starts the emulator's command line (module ``commands``)."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.emulator.commands:main")
