"""Computes git blob ids of files from their bytes, without git."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

#: What was made of files that are taken not to change; None where each is looked at anew.
_held: dict[tuple[Callable[[Path], Any], Path], Any] | None = None


@contextlib.contextmanager
def unchanging() -> Iterator[None]:
    """Files are taken to be as they were when first read: tens of thousands are not asked again."""
    global _held
    before, _held = _held, {}
    try:
        yield
    finally:
        _held = before


def once_per_content(work: Callable[[Path], Result]) -> Callable[[Path], Result]:
    """``work`` on a file, done anew only when the file's time or size has changed.

    Raises:
        OSError: The returned function finds no file.
    """

    @functools.lru_cache(maxsize=1000)
    def remembered(file: Path, modified: int, size: int) -> Result:
        return work(file)

    @functools.wraps(work)
    def once(file: Path) -> Result:
        if _held is None:
            return looked_at(file)
        if (work, file) not in _held:
            _held[work, file] = looked_at(file)
        found: Result = _held[work, file]
        return found

    def looked_at(file: Path) -> Result:
        found = file.stat()
        return remembered(file, found.st_mtime_ns, found.st_size)

    return once


def blob_id(content: bytes) -> str:
    """The id that git gives a file with this content (``git hash-object``)."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def blob_of(file: Path) -> str | None:
    """The id of a file's content; None where no such file can be read."""
    try:
        return _blob(file)
    except OSError:
        return None


@once_per_content  # Hundreds of records name the same few files.
def _blob(file: Path) -> str:
    return blob_id(file.read_bytes())
