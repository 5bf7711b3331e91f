"""``Deriver``: makes mutants of a source, wrong kernels that a check must not let pass.

A language says which functions are device code, and which edits there are of a node.
"""

from __future__ import annotations

import ast
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

from mla_var3.languages.base import Mutant

#: Comparisons that differ at the edge.
EDGES = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
#: Name of what chooses between an expression and an edit of it.
CHOICE = "_choice_"
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

    def is_masked_anyway(self, node: ast.BinOp) -> bool:
        """Whether what takes a result does by itself what its last operand does; never, unless."""
        return False

    def read(self, node: ast.expr) -> ast.Subscript | None:
        """What is read by an index that an expression is in, and twice without harm; none, unless.

        Its value is of run time also where its index is a constant.
        """
        return None

    def may_repeat(self, tree: ast.AST) -> bool:
        """Whether an expression may be evaluated twice: it writes nothing. Always, unless."""
        return True

    def mutants(self) -> Iterator[Mutant]:
        """Every mutant of every function of device code; edits that read alike are numbered."""
        for edit, function, node, put in self._places():
            yield Mutant(self._edited(node, put), edit, function.lineno)

    def choosing(self, numbers: Mapping[str, int]) -> str:
        """The source with many edits at once, each under a number by which one can be chosen.

        Args:
            numbers: The number of each edit, by the edit in words.

        Returns:
            The source, with ``CHOICE(number, as it is, lambda: edited)`` for what is edited. Where
            that is in an index, what is ``read`` by it has a choice too, with ``of=lambda:`` and
            what is read of, and the one within ends with ``again=True``. What may not be evaluated
            beside each other has ``...`` for an edit. Lines stay where they are.
        """
        puts: dict[tuple[int, int], list[tuple[int, str]]] = {}
        for edit, _, node, put in self._places():
            if (number := numbers.get(edit)) is None:
                continue
            changed = [(node, put)]
            inside = node.elts if isinstance(node, ast.Tuple) else []
            swapped = inside[::-1]
            if inside and put == ", ".join(map(self.text, swapped)):  # Two indices change places.
                changed = [(x, self.text(y)) for x, y in zip(inside, swapped, strict=True)]
            whole = self.read(node)
            for part, instead in changed:
                plain = self._beside(part, instead) + (", again=True" if whole else "")
                puts.setdefault(self._span(part), []).append((number, plain))
            if whole:
                plain = self._beside(whole, self._edited(node, put, whole))
                plain += f", of=lambda: {ast.unparse(whole.value)}"
                puts.setdefault(self._span(whole), []).append((number, plain))
        # Whoever is within another is written into it; the longest begins first.
        spans = sorted(puts, key=lambda span: (span[0], -span[1]))
        return self._with_choices(0, len(self._whole), spans, puts).decode()

    def _beside(self, node: ast.expr, put: str) -> str:
        """An edit, unless it or the expression writes: both are evaluated, and one is chosen."""
        edit = ast.parse(put, mode="eval")
        return ast.unparse(edit) if self.may_repeat(node) and self.may_repeat(edit) else "..."

    def _with_choices(
        self,
        first: int,
        last: int,
        spans: list[tuple[int, int]],
        puts: Mapping[tuple[int, int], list[tuple[int, str]]],
    ) -> bytes:
        """Bytes ``first`` to ``last`` with the choices of the spans within; takes these away."""
        text = b""
        while spans and spans[0][1] <= last:
            span = spans.pop(0)
            text += self._whole[first : span[0]]
            inner = self._with_choices(*span, spans, puts)
            for number, put in puts[span]:
                inner = b"%s(%d, %s, lambda: %s)" % (CHOICE.encode(), number, inner, put.encode())
            text, first = text + inner, span[1]
        return text + self._whole[first:last]

    def _places(self) -> Iterator[tuple[str, ast.FunctionDef, ast.expr, str]]:
        """Each edit in words, its function, what it replaces, and by what."""
        known: Counter[str] = Counter()
        for function in ast.walk(self.tree):
            if isinstance(function, ast.FunctionDef) and self.is_device(function):
                for node in (each for line in function.body for each in ast.walk(line)):
                    for inner, put, kind in self._edits(node):
                        edit = " ".join(f"{self.text(inner)} -> {put}".split())
                        what = f"{function.name}: {kind}: {edit}"
                        known[what] += 1
                        again = f" #{known[what]}" if known[what] > 1 else ""
                        yield what + again, function, inner, put

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

    def _edited(self, node: ast.expr, put: str, within: ast.expr | None = None) -> str:
        """The source, of an expression or the whole, with one expression replaced."""
        first, last = self._span(node)
        begin, end = self._span(within) if within else (0, len(self._whole))
        return (self._whole[begin:first] + put.encode() + self._whole[last:end]).decode()

    def _edits(self, node: ast.AST) -> Iterator[Edit]:
        if isinstance(node, ast.Call):
            yield from self.of_call(node)
        elif isinstance(node, ast.Subscript):
            yield from self.of_index(node)
        elif isinstance(node, ast.Compare) and (edge := EDGES.get(type(node.ops[0]))):
            left, right = self.text(node.left), self.text(node.comparators[0])
            yield node, f"{left} {edge} {right}", "edge"
        elif isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Mult | ast.Div):
            if self.is_masked_anyway(node):
                return
            yield node, f"({self.text(node.left)})", "dropped operand"
