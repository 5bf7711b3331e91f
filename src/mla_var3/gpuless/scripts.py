"""Runs a script file in this process as ``python script`` would, and returns how it ended.

The caller replaces the GPU around it.
"""

from __future__ import annotations

import runpy
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from mla_var3.errors import HyperMlaError, UsageError


@dataclass(frozen=True)
class Ended:
    """How a script ended.

    Attributes:
        code: The exit code that it asked for.
        error: The exception that ended it, such as a failed assertion; None if there was none.
            What was found until then tells why, so it is kept and not raised.
    """

    code: int = 0
    error: BaseException | None = None


def exists(script: Path) -> None:
    """Makes sure that there is a script, before anything is set up for it.

    Raises:
        UsageError: If there is none.
    """
    if not script.is_file():
        raise UsageError(f"there is no script {str(script)!r}")


def run(script: Path, arguments: Sequence[str] = (), folder: Path | None = None) -> Ended:
    """Runs a script to its end.

    Args:
        script: The script.
        arguments: Its command line.
        folder: Where what it imports lies; by default where it lies itself.

    Raises:
        HyperMlaError: If a launch is refused.
    """
    path = [str(folder or script.resolve().parent), *sys.path]
    with (
        mock.patch.object(sys, "argv", [str(script), *arguments]),
        mock.patch.object(sys, "path", path),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as leaving:
            return Ended(code=_exit_code(leaving))
        except (HyperMlaError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  # Whatever it is, the findings come first.
            return Ended(error=error)
    return Ended()


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code
    print(leaving.code, file=sys.stderr)
    return 1
