"""Console script ``hypermla NAME [arguments]``: runs the command that ``nox -s NAME`` runs."""

from __future__ import annotations

import runpy
import sys

from mla_var3 import front
from mla_var3.app.sessions import COMMANDS
from mla_var3.errors import UnknownNameError


def main() -> int:
    """Run the command that the process's arguments name; returns the exit code."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name not in COMMANDS:
        raise UnknownNameError("command", name, list(COMMANDS))
    command = COMMANDS[name]
    sys.argv[1:] = [*command.arguments, *rest]
    runpy.run_module(command.module, run_name="__main__", alter_sys=True)
    return 0


def usage() -> str:
    """What there is to run, a line per command."""
    width = max(map(len, COMMANDS))
    lines = (f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items())
    return "\n".join(["usage: hypermla NAME [arguments], without the --", "", *lines])


def script() -> None:
    """Entry point of the console script."""
    front.run("mla_var3.app.console:main")
