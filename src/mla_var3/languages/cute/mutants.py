"""``Deriver``: makes mutants of a CuTe DSL source.

A block's number or an index becomes 0 or wraps, two indices change places, a loop ends early, a
bound is dropped, a rest of a division too, and a term or a divisor; a comparison takes one element
more or fewer. The parity of a wait is left its ``& 1``, and a function that only
prefetches as it is: neither changes a result.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property

from mla_var3.languages import deriving

#: Calls that give a place in the grid.
PLACES = ("block_idx", "cluster_idx", "block_idx_in_cluster")
#: Ends of names that give a type for a dtype and an extent.
TYPES = ("MemRange", "Align")
#: Part of each call and instruction that asks a cache for bytes.
PREFETCH = "prefetch"
#: Loops of device code end after so many rounds.
ROUNDS = (1, 3)


def _only_prefetches(function: ast.FunctionDef) -> bool:
    """Whether all that a function does is to ask caches for bytes."""
    inside = _inside(function)
    if _stores(inside) or any(isinstance(node, ast.Return) and node.value for node in inside):
        return False
    calls = [n for n in inside if isinstance(n, ast.Expr) and not isinstance(n.value, ast.Constant)]
    return bool(calls) and all(PREFETCH in ast.unparse(one) for one in calls)


def _writes(function: ast.FunctionDef) -> bool:
    """Whether a function writes to what outlives it, or calls something for that alone."""
    inside = _inside(function)
    calls = any(isinstance(n, ast.Expr) and isinstance(n.value, ast.Call) for n in inside)
    return calls or _stores(inside)


def _called(tree: ast.AST) -> set[str]:
    """Names of functions and methods that are called."""
    functions = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {name for f in functions if (name := getattr(f, "attr", getattr(f, "id", None)))}


def _inside(function: ast.FunctionDef) -> list[ast.AST]:
    """All nodes of a function's body."""
    return [each for line in function.body for each in ast.walk(line)]


def _stores(nodes: Iterable[ast.AST]) -> bool:
    """Whether a part of an object, which outlives the function, is written."""
    places = (n for n in nodes if isinstance(n, ast.Subscript | ast.Attribute))
    return any(isinstance(place.ctx, ast.Store) for place in places)


class Deriver(deriving.Deriver):
    """Derives the mutants of one source."""

    def is_device(self, function: ast.FunctionDef) -> bool:
        """Whether a function is traced: it is marked so, or works with the DSL."""
        if function.name.startswith("__"):  # the host half
            return False
        if _only_prefetches(function):  # When bytes arrive changes, and not what is read.
            return False
        if any("jit" in ast.dump(d) or "kernel" in ast.dump(d) for d in function.decorator_list):
            return True
        names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        return not function.decorator_list and bool(names & {"cute", "cutlass"})

    def of_call(self, node: ast.Call) -> Iterator[deriving.Edit]:
        name, given = self.text(node.func), [self.text(one) for one in node.args]
        if name == "cutlass.range":
            first, last = (["0", *given] if len(given) == 1 else given)[:2]
            ends = node.args[0 if len(given) == 1 else 1]
            for most in ROUNDS:
                yield ends, f"cutlass.min({last}, ({first}) + {most})", f"loop of {most}"
        if name in ("cutlass.min", "cutlass.max") and len(given) == 2:
            yield node, f"({given[0]})", "dropped bound"
        if name == "cute.ceil_div":
            yield node, f"(({given[0]}) // ({given[1]}))", "dropped rest"

    def is_masked_anyway(self, node: ast.BinOp) -> bool:
        # A wait takes the last bit of its parity alone: the assembler shifts the others out.
        return node in self._parities

    def read(self, node: ast.expr) -> ast.Subscript | None:
        inner = node.elts[0] if isinstance(node, ast.Tuple) and node not in self._parents else node
        at: ast.AST = inner
        while (above := self._parents.get(at)) is not None and not isinstance(above, ast.stmt):
            if isinstance(above, ast.Subscript) and at is not above.value:
                break
            at = above
        if not isinstance(above, ast.Subscript):
            return None
        while isinstance(up := self._parents[above], ast.Subscript) and up.value is above:
            above = up  # Of a list of tensors, what is read of one of them.
        of = ast.walk(above.value)
        if not isinstance(above.ctx, ast.Load) or any(isinstance(n, ast.Call) for n in of):
            return None
        return above

    def may_repeat(self, tree: ast.AST) -> bool:
        return self._writing.isdisjoint(_called(tree))

    @cached_property
    def _writing(self) -> frozenset[str]:
        """Names of this source's functions that write, or call one that does."""
        functions = [n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)]
        found = {one.name for one in functions if _writes(one)}
        while more := {f.name for f in functions if _called(f) & found} - found:
            found |= more
        return frozenset(found)

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        """By node the one that it is part of."""
        return {part: n for n in ast.walk(self.tree) for part in ast.iter_child_nodes(n)}

    @cached_property
    def _parities(self) -> list[ast.expr]:
        """What gives waits for barriers their parity by ``& 1``, turned by ``^ 1`` or not."""
        found: list[ast.expr] = []
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="mbarrier_wait"), args=[_, parity]):
                    while isinstance(parity, ast.BinOp) and isinstance(parity.op, ast.BitXor):
                        parity = parity.left
                    match parity:
                        case ast.BinOp(op=ast.BitAnd(), right=ast.Constant(value=1)):
                            found.append(parity)
        return found

    @cached_property
    def _types(self) -> frozenset[ast.AST]:
        """Types of fields, and of memory, which have a dtype between their brackets."""
        every = list(ast.walk(self.tree))
        told = [node.annotation for node in every if isinstance(node, ast.AnnAssign)]
        types = {part for one in told for part in ast.walk(one)}
        names = {short for node in every for short in self._short_for_types(node)}
        for node in every:
            if isinstance(node, ast.Subscript):
                name = self.text(node.value)
                if name in names or name.endswith(TYPES):
                    types.add(node)
        return frozenset(types)

    def _short_for_types(self, node: ast.AST) -> Iterator[str]:
        """Names that a line gives to what makes a type."""
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=False)
            case ast.Assign(targets=[name], value=value):
                pairs = zip([name], [value], strict=True)
            case _:
                return
        yield from (self.text(n) for n, value in pairs if self.text(value).endswith(TYPES))

    def of_index(self, node: ast.Subscript) -> Iterator[deriving.Edit]:
        if isinstance(node.value, ast.Call) and self.text(node.value.func).endswith(PLACES):
            yield node, "cutlass.Int32(0)", "block 0"
        if not isinstance(node.ctx, ast.Load | ast.Store) or not isinstance(node.slice, ast.Tuple):
            return
        plain = ast.Constant | ast.Slice | ast.Starred
        # Of a type the first is a type, too, and no index.
        first = 1 if node in self._types else 0
        indices = [x for x in node.slice.elts[first:] if not isinstance(x, plain)]
        for index in indices:
            yield index, "0", "index 0"
            yield index, f"({self.text(index)}) % 2", "index modulo 2"
        for one, other in itertools.pairwise(indices):
            left, right = self.text(one), self.text(other)
            between = self.text(node.slice).partition(left)[2].partition(right)[0]
            if between.strip() == ",":
                pair = ast.Tuple([one, other], ast.Load())
                ast.copy_location(pair, one)
                pair.end_lineno, pair.end_col_offset = other.end_lineno, other.end_col_offset
                yield pair, f"{right}, {left}", "swapped indices"
