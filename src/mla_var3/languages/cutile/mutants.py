"""``Deriver``: makes mutants of a cuTile source, wrong kernels that a check must not let pass.

A tile index becomes 0 or wraps after 2 or 3, a loop ends early or begins late, a product is left
out, a term or a divisor is dropped, a comparison takes one element more or fewer.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from mla_var3.languages.base import Mutant

#: Comparisons that differ at the edge.
EDGES = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


class Deriver:
    """Derives the mutants of one source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tree = ast.parse(source)

    def mutants(self) -> Iterator[Mutant]:
        """Every mutant of every function of device code; edits that read alike are numbered."""
        known: Counter[str] = Counter()
        for function in ast.walk(self.tree):
            if isinstance(function, ast.FunctionDef) and _is_device(function):
                for node in ast.walk(function):
                    for inner, put, kind in self._edits(node):
                        text, edit = self._edited(inner, put)
                        what = f"{function.name}: {kind}: {edit}"
                        known[what] += 1
                        again = f" #{known[what]}" if known[what] > 1 else ""
                        yield Mutant(text, what + again)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line.encode()))
        return starts

    def _text(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.source, node) or ""

    def _edited(self, node: ast.expr, put: str) -> tuple[str, str]:
        """The whole source with one expression replaced, and the edit in words."""
        whole = self.source.encode()
        first = self._starts[node.lineno - 1] + node.col_offset
        last = self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        text = (whole[:first] + put.encode() + whole[last:]).decode()
        edit = f"{whole[first:last].decode()} -> {put}"
        return text, " ".join(edit.split())

    def _edits(self, node: ast.AST) -> Iterator[tuple[ast.expr, str, str]]:
        if isinstance(node, ast.Call):
            yield from self._of_call(node)
        elif isinstance(node, ast.Compare) and (edge := EDGES.get(type(node.ops[0]))):
            left, right = self._text(node.left), self._text(node.comparators[0])
            yield node, f"{left} {edge} {right}", "edge"
        elif isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Mult | ast.Div):
            yield node, f"({self._text(node.left)})", "dropped operand"

    def _of_call(self, node: ast.Call) -> Iterator[tuple[ast.expr, str, str]]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in ("load", "store") and len(node.args) > 1 and isinstance(node.args[1], ast.Tuple):
            for index in node.args[1].elts:
                if not isinstance(index, ast.Constant):
                    yield index, "0", "index 0"
                    for size in (2, 3):
                        yield index, f"({self._text(index)}) % {size}", f"index modulo {size}"
        if name == "mma" and len(node.args) == 3:
            yield node, self._text(node.args[2]), "dropped product"
        if isinstance(node.func, ast.Name) and node.func.id == "range" and len(node.args) > 1:
            first, last = map(self._text, node.args[:2])
            yield node.args[0], f"({first}) + 1", "late loop"
            for most in (1, 3):
                yield node.args[1], f"ct.minimum({last}, ({first}) + {most})", f"loop of {most}"


def _is_device(function: ast.FunctionDef) -> bool:
    return any(
        "kernel" in ast.dump(d) or "function" in ast.dump(d) for d in function.decorator_list
    )
