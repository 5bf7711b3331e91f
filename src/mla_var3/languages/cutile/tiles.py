"""Reads a cuTile kernel's fp32 accumulator tiles from its source, without compiling it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mla_var3.blobs import once_per_content
from mla_var3.languages.base import Tile

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def tiles(source: Path, kernel: str, sizes: Mapping[str, int]) -> tuple[Tile, ...]:
    """Tiles that start as ``ct.zeros`` or ``ct.full`` in fp32 and have two extents above 1.

    Args:
        source: File of the kernel.
        kernel: Name of its function.
        sizes: Value of each constant by its name in lower case, such as ``tile_m``.

    Returns:
        The largest tile of each name, the largest first; those that a matrix multiplication
        writes to are accumulators. Tiles whose extents ``sizes`` do not give are left out.
    """
    module, written = _read(source)
    function = _function(module, kernel)
    if function is None:
        return ()
    known = dict(sizes)
    found: dict[str, Tile] = {}
    for name, value in _assignments(function):
        if (extent := _value(value, known)) is not None:
            known[name.lower()] = extent
        elif shape := _fp32_shape(value, known):
            tile = Tile(name, *shape, name in written)
            found[name] = max(found.get(name, tile), tile, key=lambda t: t.rows * t.columns)
    return tuple(sorted(found.values(), key=lambda t: (-t.rows * t.columns, t.name)))


@once_per_content  # One record after the other asks for the tiles of the same few files.
def _read(source: Path) -> tuple[ast.Module, frozenset[str]]:
    """A file, and the names that a matrix multiplication writes to."""
    module = ast.parse(source.read_text(encoding="utf-8"))
    # A helper of the kernel may multiply: it has the accumulator by the same name.
    return module, frozenset(_mma_targets(module))


def _function(module: ast.Module, kernel: str) -> ast.FunctionDef | None:
    found = (n for n in ast.walk(module) if isinstance(n, ast.FunctionDef) and n.name == kernel)
    return next(found, None)


def _assignments(scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Assignments to one name, in the order of lines."""
    found = [node for node in ast.walk(scope) if isinstance(node, ast.Assign)]
    for node in sorted(found, key=lambda node: node.lineno):
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _mma_targets(module: ast.Module) -> Iterator[str]:
    for name, value in _assignments(module):
        calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        if any(_called(call) == "mma" for call in calls):
            yield name


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _fp32_shape(node: ast.expr, known: Mapping[str, int]) -> tuple[int, int] | None:
    """Rows and columns of a constant fp32 tile."""
    if not isinstance(node, ast.Call) or _called(node) not in ("zeros", "full"):
        return None
    shape, dtype = node.args[0], node.args[-1]
    if not isinstance(shape, ast.Tuple) or not ast.unparse(dtype).endswith("float32"):
        return None
    extents = [_value(extent, known) for extent in shape.elts]
    match extents:
        case [int(rows), int(columns)] if rows > 1 and columns > 1:
            return rows, columns
    return None


def _value(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """A whole number, a known name, or arithmetic of them."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return known.get(name.lower())
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            one, other = _value(left, known), _value(right, known)
            unknown = one is None or other is None or (isinstance(op, ast.FloorDiv) and not other)
            return None if unknown else _OPERATORS[type(op)](one or 0, other or 0)
    return None
