"""Reads foreign files safely: a bad one gives one sentence, and no hang, traceback or full memory.

A path may name a device or a pipe, text may be nested without end, and a number may have more
digits than Python converts. Each of these is one sentence.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mla_var3.errors import HyperMlaError, InputError

if TYPE_CHECKING:
    from pydantic import ValidationError

#: Largest file that is read; a profiler's timeline of thousands of launches is a tenth of it.
MAX_BYTES = 64 << 20


def first_fault(error: ValidationError, whole: str = "the file") -> str:
    """The first thing that a schema says of a file, as ``place: what``; ``whole`` has no place."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or whole:.200}: {first['msg']:.300}"


@contextlib.contextmanager
def faults_as(error: type[HyperMlaError], name: str, whole: str = "the file") -> Iterator[None]:
    """Raise what a file's reading or its schema says as an ``error`` that begins with ``name``.

    Args:
        error: What to raise in place of an InputError or a ValidationError.
        name: How the user calls the file.
        whole: See ``first_fault``.
    """
    from pydantic import ValidationError

    try:
        yield
    except InputError as fault:
        raise error(f"{name} {fault.reason}") from fault
    except ValidationError as fault:
        raise error(f"{name}: {first_fault(fault, whole)}") from fault


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Args:
        path: A regular file, or a link to one.

    Raises:
        InputError: It is missing, a folder, a pipe or a device, or larger than ``MAX_BYTES``.
    """
    try:
        # A pipe that nobody writes to would block an ordinary open.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(str(path), "cannot be read: it is a pipe or a device")
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # A NUL in a path is a ValueError.
        said = getattr(error, "strerror", error)
        raise InputError(str(path), f"cannot be read: {said}") from error
    if len(content) > MAX_BYTES:
        raise InputError(str(path), f"cannot be read: it is larger than {MAX_BYTES} bytes")
    return content


def read_text(path: Path) -> str:
    """The content of a UTF-8 file, without the byte order mark that editors of Windows write.

    Raises:
        InputError: As for ``read_bytes``, or it is not UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        said = f"cannot be read: byte {error.start} is not UTF-8"
        raise InputError(str(path), said) from error


def read_python(path: Path) -> ast.Module:
    """A Python file, parsed.

    Raises:
        InputError: As for ``read_text``, or it is not Python.
    """
    text = read_text(path)
    try:
        return ast.parse(text)
    except SyntaxError as error:
        said = f"{error.msg}, line {error.lineno}" if error.lineno else error.msg
        raise InputError(str(path), f"is not Python: {said}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"is not Python: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        InputError: As for ``read_text``, or it is not TOML.
    """
    return dict(parsed(tomllib.loads, read_text(path), f"{path}", "TOML"))


def read_json(path: Path, unique: bool = False) -> Any:
    """The value that a JSON file holds.

    Args:
        path: The file.
        unique: Refuse an object that states a name twice, of which JSON's readers take the last.

    Raises:
        InputError: As for ``read_text``, or it is not JSON.
    """
    parser = functools.partial(json.loads, object_pairs_hook=_once) if unique else json.loads
    return parsed(parser, read_text(path), f"{path}", "JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} is stated {names.count(twice)} times")
    return found


def parsed(parser: Callable[[str], Any], text: str, name: str, form: str) -> Any:
    """What a parser makes of ``text``.

    Args:
        parser: Raises ValueError for what it refuses.
        text: What to parse.
        name: Says in errors where the text came from.
        form: The form that it should have, such as JSON.

    Raises:
        InputError: The parser refuses it, or it is nested too deeply.
    """
    try:
        return parser(text)
    except RecursionError as error:
        raise InputError(name, f"cannot be read: not {form}: it is nested too deeply") from error
    except ValueError as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(name, f"cannot be read: not {form}: {said}") from error
