"""``Deriver``: makes mutants of a source, wrong kernels that a check must not let pass.

A language says which functions are device code, and which edits there are of a node.
"""

from __future__ import annotations

import ast
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from mla_var3.languages.base import Mutant

#: Comparisons that differ at the edge.
EDGES = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
#: What stands in an expression's place, and what kind of edit that is.
Edit = tuple[ast.expr, str, str]


class Deriver(ABC):
    """Derives the mutants of one source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tree = ast.parse(source)

    @abstractmethod
    def is_device(self, function: ast.FunctionDef) -> bool:
        """Whether a function is device code."""

    @abstractmethod
    def of_call(self, node: ast.Call) -> Iterator[Edit]:
        """Edits of a call."""

    def of_index(self, node: ast.Subscript) -> Iterator[Edit]:
        """Edits of an index; none unless a language has some."""
        return iter(())

    def mutants(self) -> Iterator[Mutant]:
        """Every mutant of every function of device code; edits that read alike are numbered."""
        known: Counter[str] = Counter()
        for function in ast.walk(self.tree):
            if isinstance(function, ast.FunctionDef) and self.is_device(function):
                for node in (each for line in function.body for each in ast.walk(line)):
                    for inner, put, kind in self._edits(node):
                        text, edit = self._edited(inner, put)
                        what = f"{function.name}: {kind}: {edit}"
                        known[what] += 1
                        again = f" #{known[what]}" if known[what] > 1 else ""
                        yield Mutant(text, what + again, function.lineno)

    def text(self, node: ast.expr) -> str:
        """The source of an expression."""
        first, last = self._span(node)
        return self._whole[first:last].decode()

    @cached_property
    def _whole(self) -> bytes:
        return self.source.encode()

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins, in bytes: ``ast.get_source_segment`` looks for it each time."""
        lengths = map(len, self._whole.splitlines(keepends=True))
        return list(itertools.accumulate(lengths, initial=0))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        """An expression's first byte, and the one after its last."""
        first = self._starts[node.lineno - 1] + node.col_offset
        last = self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        return first, last

    def _edited(self, node: ast.expr, put: str) -> tuple[str, str]:
        """The whole source with one expression replaced, and the edit in words."""
        whole = self._whole
        first, last = self._span(node)
        text = (whole[:first] + put.encode() + whole[last:]).decode()
        edit = f"{whole[first:last].decode()} -> {put}"
        return text, " ".join(edit.split())

    def _edits(self, node: ast.AST) -> Iterator[Edit]:
        if isinstance(node, ast.Call):
            yield from self.of_call(node)
        elif isinstance(node, ast.Subscript):
            yield from self.of_index(node)
        elif isinstance(node, ast.Compare) and (edge := EDGES.get(type(node.ops[0]))):
            left, right = self.text(node.left), self.text(node.comparators[0])
            yield node, f"{left} {edge} {right}", "edge"
        elif isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Mult | ast.Div):
            yield node, f"({self.text(node.left)})", "dropped operand"
