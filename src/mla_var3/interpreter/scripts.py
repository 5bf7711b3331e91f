"""Runs a Python script with its launches interpreted, and reports each of them."""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mla_var3.errors import InterpreterError
from mla_var3.gpuless.cuda import Device
from mla_var3.interpreter.redirect import redirected
from mla_var3.interpreter.report import LaunchReport


@contextlib.contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Gives a script the arguments and the import path that Python would give it."""
    argv, path = sys.argv[:], sys.path[:]
    sys.argv[:] = [str(script), *arguments]
    sys.path.insert(0, str(script.parent.resolve()))
    try:
        yield
    finally:
        sys.argv[:], sys.path[:] = argv, path


def run_script(
    script: Path, arguments: Sequence[str] = (), device: Device | None = None
) -> tuple[list[LaunchReport], int]:
    """Runs a script as ``python script`` would, without a GPU.

    Args:
        script: The script.
        arguments: Its command line.
        device: What it is told about the GPU.

    Returns:
        The reports of its launches, and the exit code that it asked for.

    Raises:
        InterpreterError: If there is no such file, or the interpreter refuses a launch.
    """
    if not script.is_file():
        raise InterpreterError(f"there is no script {str(script)!r}")
    code = 0
    with redirected(device) as reports, _as_main(script, arguments):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as leaving:
            code = _exit_code(leaving)
    return reports, code


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code
    print(leaving.code, file=sys.stderr)
    return 1


def summary(reports: Sequence[LaunchReport]) -> str:
    """Returns the report of every launch, and how many there were."""
    errors = sum(len(r.errors) for r in reports)
    findings = sum(len(r.diagnostics) for r in reports)
    head = (
        f"interpreted {len(reports)} launch{'' if len(reports) == 1 else 'es'}: "
        f"{findings} finding{'' if findings == 1 else 's'}, {errors} of them errors"
    )
    return "\n".join([*(r.summary() for r in reports), head])
