"""``nox -s run -- script.py``: a cuTile or CuTe DSL script as it is, without a GPU."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path

from mla_var3 import front, inputs
from mla_var3.arguments import HELP
from mla_var3.errors import UsageError

PROG = "python -m mla_var3.app.run"
#: Module whose import says that a script launches CuTe DSL kernels, which the emulator runs.
CUTE = "cutlass"
USAGE = f"""\
usage: {PROG} [OPTIONS] SCRIPT [ARGS]

Runs a script on the CPU: cuTile kernels in the interpreter, CuTe DSL kernels from their PTX in the
emulator. The script's own imports decide. OPTIONS are those of
  python -m mla_var3.interpreter run --help
  python -m mla_var3.emulator run --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script that ``argv`` (the process's by default) names; returns the exit code.

    Raises:
        UsageError: No script is named, or it cannot be read as Python.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] and argv[0] in HELP:
        print(USAGE)
        return 0
    script = next((Path(word) for word in argv if word.endswith(".py")), None)
    if script is None:
        raise UsageError(f"a script that ends in .py must be given; see {PROG} --help")
    if uses_cute(script):
        from mla_var3.emulator.commands import main as emulator

        return emulator(["run", *argv])
    from mla_var3.interpreter.commands import main as interpreter

    return interpreter(["run", *argv])


def uses_cute(script: Path) -> bool:
    """Whether a script imports the CuTe DSL.

    Raises:
        InputError: It cannot be read.
        UsageError: It is not Python; names the line.
    """
    try:
        tree = ast.parse(inputs.read_text(script))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UsageError(f"{script} is not a Python script: {error}") from error
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return any(name.partition(".")[0] == CUTE for name in names)


if __name__ == "__main__":
    front.run("mla_var3.app.run:main")
