"""Shortens source file names in compile facts to paths within the project or package."""

from __future__ import annotations

import functools
import sys
from pathlib import Path


@functools.cache
def _roots() -> tuple[tuple[Path, str], ...]:
    """Folders that source paths are shown relative to, and what stands for each."""
    import mla_var3

    package = Path(mla_var3.__file__).resolve().parent
    entries = {Path(entry).resolve() for entry in sys.path if entry and Path(entry).is_dir()}
    # The innermost folder of sys.path wins, so that site-packages beats the prefix around it; an
    # environment inside the checkout comes before the checkout.
    imports = sorted(entries, key=lambda entry: (-len(entry.parts), str(entry)))
    installed = [e for e in imports if e.name in ("site-packages", "dist-packages")]
    checkout = package.parents[1]
    own = [checkout] if (checkout / "pyproject.toml").is_file() else []
    return (
        ((package / "kernel").resolve(), "kernels"),
        (package, "src/mla_var3"),
        *((folder, "") for folder in (*installed, *own, *imports)),
    )


@functools.cache
def relative_source(path: str) -> str:
    """The path as the project names it: ``kernels/...``, ``src/mla_var3/...``, ``tests/...``.

    Files outside the project are shown relative to the folder they are imported from, or by name
    alone, so that facts do not depend on where things are installed.
    """
    given = Path(path)
    if not given.is_absolute():
        return given.as_posix()
    resolved = given.resolve()
    for root, stands_for in _roots():
        if resolved.is_relative_to(root):
            return (Path(stands_for) / resolved.relative_to(root)).as_posix()
    return resolved.name
