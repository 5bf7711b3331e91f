"""Entry point of every command: imports and runs it, and turns what stops it into one sentence."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import os
import signal
import sys
from types import TracebackType
from typing import Any, NoReturn, TextIO

from mla_var3.errors import EXIT_BAD_INPUT, EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, HyperMlaError

#: What a user can cause or meet; anything else is a fault of the program and keeps its traceback.
EXPECTED = (HyperMlaError, OSError, KeyboardInterrupt)


def run(target: str, **arguments: Any) -> NoReturn:
    """Import and call ``module:function`` and exit with the code it returns.

    What a user can cause or meet ends with one sentence on stderr: 130 for an interrupt, else 2.

    Args:
        target: Such as ``mla_var3.app.cli:main``.
        arguments: What the function is called with.
    """
    _use_utf8()
    module, _, name = target.partition(":")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # A terminal that lacks a character shows "?".
    try:
        try:
            code = getattr(importlib.import_module(module), name)(**arguments)
        except SystemExit as stop:  # ``--help``; or rich, when whoever read it has seen enough.
            code = EXIT_BROKEN_PIPE if isinstance(stop.__context__, BrokenPipeError) else stop.code
        if sys.stdout is not None:
            sys.stdout.flush()  # Python would tell of a full disk after the exit code is set.
    except EXPECTED as error:
        code = tell(error)
    # All is done: an interrupt now would only tear through what libraries do at exit.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _use_utf8() -> None:
    """Start again in Python's UTF-8 mode where the locale's file names are not UTF-8.

    Such as in the C locale without coercion. Compilers put file names into what they write, as
    UTF-8, and fail for a checkout whose path has other characters than ASCII.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def tell(error: BaseException) -> int:
    """Say on stderr what stopped the command; returns the exit code."""
    match error:
        case KeyboardInterrupt():
            lines, code = ["interrupted; nothing half-written is left"], EXIT_INTERRUPTED
            # Where it struck inside exec() of a text (each dataclass has one), Python would end by
            # the signal in spite of our code, unless another exec() went well.
            exec("")
        case BrokenPipeError():  # Whoever read our output has seen enough.
            lines, code = [], EXIT_BROKEN_PIPE
        case OSError():
            where = f" ({error.filename})" if error.filename else ""
            lines, code = [f"error: {error.strerror or error}{where}"], EXIT_BAD_INPUT
        case _:
            lines, code = [f"error: {line}" for line in str(error).splitlines()], EXIT_BAD_INPUT
    with contextlib.suppress(OSError):
        for line in lines:
            print(line, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        _close_if_broken(stream)
    return code


def _close_if_broken(stream: TextIO | None) -> None:
    """Close a stream that cannot be written, or Python tries once more at exit and says so."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            stream.close()


def excepthook(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """What ``run`` does, for packages that load on the way to it (see ``mla_var3.__init__``)."""
    if isinstance(error, EXPECTED):
        sys.exit(tell(error))
    sys.__excepthook__(kind, error, trace)
