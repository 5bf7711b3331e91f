"""Tracks values that nothing determined: padding without a value, and memory never written.

A tile that holds such elements has a ``Taint``: a mask of them, and where they come from. Masks
exist only while such a tile does, so a launch without one pays nothing. Selecting a determined
value instead (``where``), multiplying integers by zero, and clipping at a store end a taint;
a taint that reaches a store, a branch or an address is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mla_var3.interpreter.report import SourceLine

if TYPE_CHECKING:
    from mla_var3.interpreter.program import Runtime

Env = list[Any]
Rule = Callable[[Env, "Runtime"], None]


@dataclass(frozen=True)
class Origin:
    """Where undetermined elements come from.

    Attributes:
        kind: The diagnostic kind, ``"undetermined-padding"`` or ``"uninitialised-read"``.
        where: Line of the load.
        array: Name of the array loaded.
    """

    kind: str
    where: SourceLine
    array: str


@dataclass(frozen=True)
class Taint:
    """Which elements of a tile are undetermined.

    Attributes:
        mask: bool tensor of the tile's shape.
        origins: Where they come from.
    """

    mask: torch.Tensor
    origins: frozenset[Origin]

    def map(self, fn: Callable[[torch.Tensor], torch.Tensor]) -> Taint | None:
        """Applies a function to the mask; None if no element stays undetermined."""
        return settle(fn(self.mask), self.origins)

    def __or__(self, other: Taint) -> Taint:
        return Taint(self.mask | other.mask, self.origins | other.origins)


def settle(mask: torch.Tensor, origins: frozenset[Origin]) -> Taint | None:
    """Returns a taint, or None for a mask that is empty."""
    return Taint(mask, origins) if bool(mask.any()) else None


def assign(rt: Runtime, slot: int, taint: Taint | None) -> None:
    """Enters the taint of a slot, or removes a stale one."""
    if taint is None:
        rt.taints.pop(slot, None)
    else:
        rt.taints[slot] = taint


def union(rt: Runtime, slots: Sequence[int]) -> Taint | None:
    """Returns the elementwise union of the taints of slots, None if there is none."""
    found: Taint | None = None
    for slot in slots:
        taint = rt.taints.get(slot)
        if taint is not None:
            found = taint if found is None else found | taint
    return found


def elementwise(inputs: Sequence[int], output: int, shape: tuple[int, ...]) -> Rule:
    """An output element is undetermined if any input element at its place is."""

    def rule(env: Env, rt: Runtime) -> None:
        taint = union(rt, inputs)
        assign(rt, output, None if taint is None else taint.map(lambda m: m.expand(shape)))

    return rule


def reshaped(source: int, output: int, fn: Callable[[torch.Tensor], torch.Tensor]) -> Rule:
    """The mask moves as the elements do."""

    def rule(env: Env, rt: Runtime) -> None:
        taint = rt.taints.get(source)
        assign(rt, output, None if taint is None else taint.map(fn))

    return rule


def annihilated(x: int, y: int, output: int, absorbing: int | bool) -> Rule:
    """An operation with an absorbing operand (``0 * x``, ``False & x``): that one determines it."""

    def mask_of(taint: Taint | None, other: Any) -> torch.Tensor | None:
        if taint is None:
            return None
        return taint.mask & torch.as_tensor(other != absorbing)

    def rule(env: Env, rt: Runtime) -> None:
        tx, ty = rt.taints.get(x), rt.taints.get(y)
        if tx is None and ty is None:
            rt.taints.pop(output, None)
            return
        # Where both are undetermined, neither value is known to be the absorbing one.
        masks = [m for m in (mask_of(tx, env[y]), mask_of(ty, env[x])) if m is not None]
        if tx is not None and ty is not None:
            masks.append(tx.mask & ty.mask)
        mask = masks[0]
        for other in masks[1:]:
            mask = mask | other
        origins = frozenset().union(*(t.origins for t in (tx, ty) if t is not None))
        assign(rt, output, settle(mask, origins))

    return rule


def selected(cond: int, x: int, y: int, output: int) -> Rule:
    """``where``: only the side that is selected counts, and the condition itself."""

    def rule(env: Env, rt: Runtime) -> None:
        taints = [rt.taints.get(slot) for slot in (cond, x, y)]
        present = [t for t in taints if t is not None]
        if not present:
            rt.taints.pop(output, None)
            return
        choose = torch.as_tensor(env[cond])
        none = torch.zeros_like(choose)
        of_cond, of_x, of_y = (none if t is None else t.mask for t in taints)
        mask = of_cond | torch.where(choose, of_x, of_y)
        assign(rt, output, settle(mask, frozenset().union(*(t.origins for t in present))))

    return rule


def nothing(output: int) -> Rule:
    """The output is always determined."""

    def rule(env: Env, rt: Runtime) -> None:
        rt.taints.pop(output, None)

    return rule


def own(env: Env, rt: Runtime) -> None:
    """For operations that enter the taint of their results themselves."""


def union_any(rt: Runtime, slots: Sequence[int]) -> frozenset[Origin]:
    """Returns the origins of the taints of slots of any shapes; empty if there is none."""
    return frozenset().union(*(rt.taints[slot].origins for slot in slots if slot in rt.taints))
