"""Computes git blob ids of files from their bytes, without git."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


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
