"""Reads the definitions of kernel sources, and where the names that they use come from."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mla_var3.blobs import once_per_content
from mla_var3.errors import PlanError
from mla_var3.paths import kernels_dir
from mla_var3.runtime.registry import PACKAGE

#: Statements of which the names are kept: those of all kernels, which versions share.
_NODES = 1 << 16

Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Import:
    """A name that comes from outside of ``kernels/``.

    Attributes:
        line: The statement that imports it alone.
        typing_only: Whether it stands under ``if TYPE_CHECKING``.
    """

    line: str
    typing_only: bool


@dataclass
class Module:
    """A source file, its definitions, and where its other names come from."""

    path: Path
    lines: list[str]
    doc: str
    own: dict[str, Definition] = field(default_factory=dict)
    inner: dict[str, tuple[Path, str]] = field(default_factory=dict)
    outer: dict[str, Import] = field(default_factory=dict)

    def text(self, node: ast.AST) -> list[str]:
        """A statement's lines, with decorators and the comments right above it."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])  # type: ignore[attr-defined]
        while re.match(r"\s*#(?! -)", self.lines[first - 2]):
            first -= 1
        return self.lines[first - 1 : node.end_lineno]  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Name:
    """A definition by its module and name."""

    path: Path
    name: str


@once_per_content
def read(path: Path) -> Module:
    """A source file of kernels.

    Raises:
        PlanError: It is not Python.
    """
    text = path.read_text(encoding="utf-8")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise PlanError(f"{path} is not Python: {error}") from error
    lines = text.split("\n")
    module = Module(path, lines, "\n".join(lines[: tree.body[0].end_lineno]))
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                module.own[name] = node
            case ast.Assign() | ast.AnnAssign():
                module.own |= dict.fromkeys(names_stored(node), node)
            case ast.Import() | ast.ImportFrom():
                _take(module, node, False)
            case ast.If(body=body):
                for inner in body:
                    if isinstance(inner, ast.Import | ast.ImportFrom):
                        _take(module, inner, True)
    return module


@functools.lru_cache(maxsize=_NODES)
def names_stored(node: ast.AST) -> tuple[str, ...]:
    """Names that a statement gives a value."""
    return tuple(
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    )


@functools.lru_cache(maxsize=_NODES)
def names_with_parts(node: ast.AST) -> frozenset[str]:
    """Names of which a statement uses an attribute."""
    return frozenset(
        part.value.id
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name)
    )


def _take(module: Module, node: ast.Import | ast.ImportFrom, typing_only: bool) -> None:
    """Note where the names of an import come from."""
    for alias in node.names:
        name = alias.asname or alias.name
        as_other = f" as {alias.asname}" if alias.asname else ""
        if isinstance(node, ast.Import):
            line = f"import {alias.name}{as_other}"
            module.outer[name.split(".")[0]] = Import(line, typing_only)
        elif inner := _kernel_file(module.path, node):
            module.inner[name] = (inner, alias.name)
        else:
            line = f"from {node.module} import {alias.name}{as_other}"
            module.outer[name] = Import(line, typing_only)


def _kernel_file(path: Path, node: ast.ImportFrom) -> Path | None:
    """The file below ``kernels/`` that names are imported from; None where it is another."""
    parts = (node.module or "").split(".")
    if node.level:
        return path.parents[node.level - 1].joinpath(*filter(None, parts)).with_suffix(".py")
    if not (node.module or "").startswith(f"{PACKAGE}."):
        return None
    return kernels_dir().joinpath(*parts[len(PACKAGE.split(".")) :]).with_suffix(".py")


@functools.lru_cache(maxsize=_NODES)
def names_used(node: ast.AST, annotations: bool) -> tuple[str, ...]:
    """Names that a statement uses, in the order of the text."""
    return tuple(p.id for p in parts_of(node, annotations) if isinstance(p, ast.Name))


def parts_of(node: ast.AST, annotations: bool) -> Iterator[ast.AST]:
    """A node and all below it, in the order of the text; annotations only where they are asked."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") and not annotations:
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from parts_of(part, annotations)


def resolved(at: Name) -> Name:
    """Where a name is defined, or imported from outside of ``kernels/``."""
    while found := read(at.path).inner.get(at.name):
        at = Name(*found)
    return at


def with_bases(at: Name, node: ast.ClassDef) -> list[tuple[Name, ast.ClassDef]]:
    """A class and its bases below ``kernels/``, in the order in which Python looks for a method."""
    # Of a base that several others share the last place counts.
    return list(dict.fromkeys(reversed(list(_depth_first(at, node)))))[::-1]


def _depth_first(at: Name, node: ast.ClassDef) -> Iterator[tuple[Name, ast.ClassDef]]:
    yield at, node
    for base in node.bases:
        if isinstance(base, ast.Name):
            where = resolved(Name(at.path, base.id))
            found = read(where.path).own.get(where.name)
            if isinstance(found, ast.ClassDef):
                yield from _depth_first(where, found)
