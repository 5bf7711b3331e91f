"""Identifies a record's source files by git blob id, and finds those that differ from today's.

A source is named by its git blob id, worked out from its bytes, so that it is known without git
and outlives rewritten history.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from mla_var3.blobs import blob_id, blob_of
from mla_var3.errors import RecordError
from mla_var3.evidence.model import Git
from mla_var3.paths import kernels_dir, repo_root

#: Where sources lie, from the top of the checkout.
KERNELS = "kernels"


def identify(files: Iterable[Path], root: Path | None = None) -> dict[str, str]:
    """Blob id of each file below the kernels folder, by its path from the top of the checkout.

    Args:
        files: The files.
        root: The kernels folder; this package's by default.
    """
    root = root or kernels_dir()
    named = {f"{KERNELS}/{f.resolve().relative_to(root).as_posix()}": f for f in files}
    return {name: blob_id(named[name].read_bytes()) for name in sorted(named)}


def changed(sources: Mapping[str, str]) -> list[str]:
    """The sources that are gone, or differ from those named."""
    return [name for name, blob in sources.items() if blob_of(file_of(name)) != blob]


def file_of(name: str) -> Path:
    """The file of a source's path."""
    return _file(kernels_dir(), name)


@functools.lru_cache(maxsize=4096)  # Thousands of records name the same few files.
def _file(folder: Path, name: str) -> Path:
    return folder / name.removeprefix(f"{KERNELS}/")


def git(*arguments: str, input: str | None = None) -> str | None:
    """What git prints about the checkout; None where it refuses or is not installed."""
    told = git_bytes(*arguments, input=input)
    return None if told is None else told.decode(errors="replace").strip()


def git_bytes(*arguments: str, input: str | None = None) -> bytes | None:
    """Output of a git command as bytes."""
    command = ["git", "-C", str(repo_root()), *arguments]
    said = None if input is None else input.encode()
    try:
        return subprocess.run(command, capture_output=True, check=True, input=said).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def kernels_tracked() -> bool:
    """Whether the repository around the checkout, if there is one, is the kernels' own.

    An installed package may lie in, or be used from, somebody else's repository, whose commits say
    nothing about these sources.
    """
    return git("ls-files", "--error-unmatch", str(kernels_dir() / "__init__.py")) is not None


def git_state() -> Git | None:
    """The checkout's commit; None where the kernels are not tracked by the repository around them.

    ``HYPERMLA_COMMIT`` names the commit on a host that got the files without their repository;
    whether they were changed there cannot be told.

    Raises:
        RecordError: ``HYPERMLA_COMMIT`` is not a commit's hash.
    """
    if carried := os.environ.get("HYPERMLA_COMMIT"):
        if not re.fullmatch(r"[0-9a-f]{40}", carried):
            raise RecordError(f"HYPERMLA_COMMIT={carried!r} is not the 40 hex digits of a commit")
        return Git(commit=carried, dirty=None)
    if not kernels_tracked():
        return None
    commit = git("rev-parse", "HEAD")
    # results/ itself is left out: writing one record must not make the next one dirty.
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    if commit is None:
        return None
    return Git(commit=commit, dirty=None if changes is None else bool(changes))
