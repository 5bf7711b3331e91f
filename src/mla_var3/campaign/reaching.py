"""Finds the files of its user that an adopted file runs: those that it names, and its neighbors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from mla_var3 import inputs

#: Functions of ``campaign`` that take a file, by its path from the file that calls them.
NAMING = ("definitions", "script")


def imports(path: Path) -> set[str]:
    """Names of the modules that a file imports, dots before those of its package."""
    found: set[str] = set()
    for node in ast.walk(inputs.read_python(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def naming(path: Path) -> list[tuple[ast.Constant, Path]]:
    """The texts by which a file names others that are there, each with the file."""
    found = []
    for node in ast.walk(inputs.read_python(path)):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(text)) as said, *_]):
                other = (path.resolve().parent / text).resolve()
                if name in NAMING and other.is_file():
                    found.append((said, other))
    return found


def neighbors(path: Path) -> Iterator[Path]:
    """Files that a file imports from its folder, those of packages there too."""
    for name in sorted(imports(path)):
        parts = [part for part in name.split(".") if part]
        if parts:
            stem = path.parent.joinpath(*parts)
            yield from (p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file())


def reached(path: Path) -> list[Path]:
    """A file and all that it runs of its user's, itself first, each once."""
    found, open_ = list[Path](), [path.resolve()]
    while open_:
        one = open_.pop(0)
        if one not in found:
            found.append(one)
            open_ += [*(other for _, other in naming(one)), *(p.resolve() for p in neighbors(one))]
    return found
