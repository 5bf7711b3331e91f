"""Collects identifiers that a host function reaches through the definitions of its project.

``arch`` tells from them which archs the kernel can be compiled for.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from mla_var3.blobs import once_per_content
from mla_var3.languages.cute.sources import module_of, used_modules


@dataclass(frozen=True)
class _Definitions:
    """Top-level names of one source file: what defines them, and what was imported as them."""

    nodes: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


def identifiers(host: Any) -> frozenset[str]:
    """Names, attributes and imported paths in the host's definition and in all it refers to.

    Args:
        host: A host function, or an object of a class whose ``__call__`` is one.
    """
    name = getattr(host, "__qualname__", type(host).__qualname__).split(".")[0]
    return _reached(module_of(host), name)


@functools.lru_cache(maxsize=256)  # Every launch of a problem asks; a module is made of one source.
def _reached(module: ModuleType, name: str) -> frozenset[str]:
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting: list[tuple[ModuleType, str]] = [(module, name)]
    while waiting:
        here, name = waiting.pop()
        if (here.__name__, name) in seen:
            continue
        seen.add((here.__name__, name))
        definitions = _definitions(Path(str(here.__file__)))
        used = set(_names(definitions.nodes.get(name, ())))
        found |= used
        waiting += [(here, other) for other in used & definitions.nodes.keys()]
        waiting += _bound(here, used & definitions.nodes.keys(), used)
        for other in used & definitions.imports.keys():
            path = definitions.imports[other]
            found |= set(path.split("."))
            waiting += _followed(here, path, used)
    return frozenset(found)


def _followed(here: ModuleType, path: str, used: set[str]) -> Iterator[tuple[ModuleType, str]]:
    """Where an imported path leads inside the project: to one name, or to a module's used names."""
    for module in used_modules(here):
        if module.__name__ == path:
            yield from ((module, name) for name in used)
        elif path.startswith(f"{module.__name__}."):
            yield module, path.rpartition(".")[2]


def _bound(
    here: ModuleType, assigned: set[str], used: set[str]
) -> Iterator[tuple[ModuleType, str]]:
    """Names of modules that are assigned, not imported, as a fetched example's is."""
    for module in used_modules(here):
        if any(vars(here).get(name) is module for name in assigned):
            yield from ((module, name) for name in used)


@once_per_content
def _definitions(path: Path) -> _Definitions:
    found = _Definitions()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    found.imports[alias.asname or alias.name.split(".")[0]] = alias.name
            case ast.ImportFrom(module=source, names=names):
                for alias in names:
                    found.imports[alias.asname or alias.name] = f"{source or ''}.{alias.name}"
            case _:
                for name in _defined(node):
                    found.nodes.setdefault(name, []).append(node)
    return found


def _defined(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            for target in targets:
                yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _names(nodes: Iterable[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        for part in ast.walk(node):
            match part:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name
                case ast.ImportFrom(module=str(source), names=names):
                    yield from source.split(".")
                    yield from (alias.name for alias in names)
