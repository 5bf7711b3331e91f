"""``python -m mla_var3.emulator``: runs GPU scripts on the CPU, reports races and other faults."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.emulator.commands:main")
