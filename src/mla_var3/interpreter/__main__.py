"""``python -m mla_var3.interpreter``: starts the interpreter's command line (``commands``)."""

from mla_var3 import front

if __name__ == "__main__":
    front.run("mla_var3.interpreter.commands:main")
