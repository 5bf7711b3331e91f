"""Paths of the project (checkout, committed records, output of runs), and atomic file writes."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path


def repo_root() -> Path:
    """The checkout that holds ``kernels/`` and ``results/``; the working directory in a wheel.

    ``HYPERMLA_ROOT`` overrides it.
    """
    if override := os.environ.get("HYPERMLA_ROOT"):
        return Path(override)
    return _checkout(__file__) or Path.cwd()


@functools.cache
def _checkout(module: str) -> Path | None:
    """The checkout that this module lies in; None in a wheel."""
    candidate = Path(module).resolve().parents[2]
    return candidate if (candidate / "kernels").is_dir() else None


@functools.cache
def kernels_dir() -> Path:
    """The folder that is the package ``mla_var3.kernel``."""
    return (Path(__file__).resolve().parent / "kernel").resolve()


def results_dir() -> Path:
    """Committed records."""
    return repo_root() / "results"


def out_dir() -> Path:
    """Bulk artefacts of runs, ignored by git."""
    return repo_root() / "out"


def relative(path: Path, base: Path | None = None) -> str:
    """``path`` as seen from ``base``, with slashes; unchanged where it does not lie below it.

    Args:
        path: Any path; symbolic links in it are kept as long as that leads below ``base``.
        base: A folder; the working directory by default, as messages name files.
    """
    base = base or Path.cwd()
    for seen in (Path.absolute, Path.resolve):
        one, other = seen(path), seen(base)
        if one.is_relative_to(other):
            return one.relative_to(other).as_posix()
    return path.as_posix()


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write ``content`` so that ``path`` holds the old or the new content, never a part.

    Args:
        path: Target; missing parent folders are made.
        content: Text (written as UTF-8) or bytes.

    Raises:
        OSError: The disk is full or the folder cannot be written; ``path`` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
