"""The variables of a kernel that is being lowered: the slot of each, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda.tile._ir.type import TileTy

from mla_var3.interpreter.names import assigned_name
from mla_var3.interpreter.program import loc_of
from mla_var3.interpreter.values import is_scalar_type

#: Operations whose results are as large as the problem, and those that are as their operands are.
_OF_THE_PROBLEM = frozenset({"tile_bid", "tile_num_blocks", "num_tiles"})
_OF_OPERANDS = frozenset({
    "assign", "assume_bounded", "assume_div_by", "raw_binary_arith", "raw_where", "tile_astype",
    "tile_broadcast", "tile_permute", "tile_reshape", "unaryop",
})  # fmt: skip


class Slots:
    """Gives each variable a slot."""

    def __init__(self) -> None:
        self.slot_of: dict[str, int] = {}
        self.size = 0
        self.local: set[str] | None = None  # variables of the combiner being lowered
        self.captured: dict[str, tuple[int, int, Any]] = {}
        self.defining: dict[str, Any] = {}
        self.named: dict[str, str] = {}  # by the source's name
        self.signs: set[str] = set()  # places of remainders, which ask for signs
        self.watched: dict[tuple[Any, ...], int] = {}  # slot by span of the expression

    def slot(self, var: Any) -> int:
        """Returns the slot of a variable."""
        found = self.slot_of.get(var.name)
        if found is None:
            found = self.slot_of[var.name] = self.size
            self.size += 1
        if self.local is not None and var.name not in self.local and self._held_scalar(var):
            # A combiner runs on tensors, so it needs a tensor of a scalar from outside.
            if var.name not in self.captured:
                self.captured[var.name] = (found, self.fresh(), var.get_type().dtype)
            return self.captured[var.name][1]
        return found

    def slots(self, variables: Sequence[Any]) -> tuple[int, ...]:
        """Returns the slots of variables."""
        return tuple(self.slot(v) for v in variables)

    def fresh(self) -> int:
        """Returns a slot that no variable has."""
        self.size += 1
        return self.size - 1

    def _held_scalar(self, var: Any) -> bool:
        ty = var.get_type()
        return isinstance(ty, TileTy) and is_scalar_type(ty.dtype, ty.shape)

    def is_scalar(self, var: Any) -> bool:
        """Tells whether the value of a variable is a Python int or bool."""
        return self.local is None and self._held_scalar(var)

    def constant(self, var: Any) -> Any:
        """Returns the value of a variable that is a constant, else None."""
        op = self.defining.get(var.name)
        return op.value if op is not None and op.op == "typed_const" else None

    def grows(self, var: Any) -> bool:
        """Tells whether an integer is made of block numbers, extents or loop counters.

        A remainder or a minimum is too: what bounds it may be an extent that is compiled in.
        """
        op = self.defining.get(var.name)
        if op is None or op.op in _OF_THE_PROBLEM:
            return True  # A parameter of the kernel, of a loop or of a branch.
        return op.op in _OF_OPERANDS and any(map(self.grows, op.all_inputs()))

    def names(self) -> dict[str, int]:
        """Returns the slots of the named variables that are defined so far."""
        return {
            name: self.slot_of[variable]
            for name, variable in self.named.items()
            if name.isidentifier() and variable in self.slot_of
        }

    def note_names(self, op: Any) -> None:
        """Notes what the source calls the values of an operation."""
        inner = [p for block in op.nested_blocks for p in block.params]
        for var in (*op.result_vars, *inner):
            self.named[var.get_original_name()] = var.name
        if (name := assigned_name(loc_of(op))) and isinstance(op.result_vars[0].get_type(), TileTy):
            self.named[name] = op.result_vars[0].name
