"""Taint tracking: follows undetermined elements (padding, unwritten memory) through operations.

A tile that holds such elements has a ``Taint``: for each element the set of places that it comes
from, as bits of an integer, so that a report names those lines alone that an element came through.
Taints exist only while such a tile does, so a launch without one pays nothing. Selecting a
determined value instead (``where``), multiplying integers by zero, and clipping at a store end a
taint; a taint that reaches a store, a branch or an address is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from mla_var3.interpreter.launch_report import SourceLine

Env = list[Any]
Rule = Callable[[Env, "Holder"], None]
Move = Callable[[torch.Tensor], torch.Tensor]

#: Bits of int64 that origins have; those that come later share the last one.
_BITS = 62


@dataclass(frozen=True)
class Origin:
    """Where undetermined elements come from.

    Attributes:
        kind: The diagnostic kind, ``"undetermined-padding"`` say.
        where: Line that made them.
        subject: Name of the array loaded; empty where no array is concerned.
    """

    kind: str
    where: SourceLine
    subject: str = ""


@dataclass
class Origins:
    """The origins of one launch, each with its bit."""

    known: list[Origin] = field(default_factory=list)

    def bit(self, origin: Origin) -> int:
        """Returns the bit of an origin."""
        if origin not in self.known:
            self.known.append(origin)
        return 1 << min(self.known.index(origin), _BITS - 1)

    def named(self, bits: int) -> list[Origin]:
        """Returns the origins that bits stand for."""
        return [o for i, o in enumerate(self.known) if bits >> min(i, _BITS - 1) & 1]


@dataclass(frozen=True)
class Taint:
    """Which elements of a tile are undetermined, and why.

    Attributes:
        labels: int64 tensor of the tile's shape: the bits of each element's origins, 0 if it is
            determined.
        bits: Every bit that occurs in ``labels``; maybe more.
    """

    labels: torch.Tensor
    bits: int

    @property
    def mask(self) -> torch.Tensor:
        """Which elements are undetermined."""
        return self.labels != 0

    def map(self, move: Move) -> Taint | None:
        """Moves the labels as the elements move; None if no element stays undetermined."""
        return settle(move(self.labels), self.bits)

    def spread(self, spread: Move) -> Taint | None:
        """Applies a function of bool masks to the mask of each origin."""
        return settle(self.spread_labels(spread), self.bits)

    def spread_labels(self, spread: Move) -> torch.Tensor:
        """Returns the labels after ``spread``."""
        parts = [spread((self.labels & bit) != 0).long() * bit for bit in each_bit(self.bits)]
        out = parts[0]
        for part in parts[1:]:
            out = out | part
        return out

    def exact_bits(self, allowed: torch.Tensor | None = None) -> int:
        """Returns the bits that do occur, among ``allowed`` elements if given."""
        labels = self.labels if allowed is None else torch.where(allowed, self.labels, 0)
        return sum(bit for bit in each_bit(self.bits) if bool((labels & bit).any()))

    def __or__(self, other: Taint) -> Taint:
        return Taint(self.labels | other.labels, self.bits | other.bits)


class Holder(Protocol):
    """What of a launch's state holds taints.

    Attributes:
        origins: The origins of the launch.
        taints: By slot.
    """

    origins: Origins
    taints: dict[int, Taint]


class Fresh(Taint):
    """What an operation itself made undetermined; its rule adds what its inputs bring."""


def each_bit(bits: int) -> Iterator[int]:
    """Yields the powers of two in a sum of them."""
    while bits:
        yield bits & -bits
        bits &= bits - 1


def made(rt: Holder, mask: torch.Tensor, origin: Origin) -> Fresh:
    """Returns the taint of elements that became undetermined here."""
    bit = rt.origins.bit(origin)
    return Fresh(mask.long() * bit, bit)


def settle(labels: torch.Tensor, bits: int) -> Taint | None:
    """Returns a taint, or None if every element is determined."""
    return Taint(labels, bits) if bool(labels.any()) else None


def assign(rt: Holder, slot: int, taint: Taint | None) -> None:
    """Enters the taint of a slot, or removes a stale one."""
    if taint is None:
        rt.taints.pop(slot, None)
    else:
        rt.taints[slot] = taint


def union(rt: Holder, slots: Sequence[int]) -> Taint | None:
    """Returns the elementwise union of the taints of slots, None if there is none."""
    found: Taint | None = None
    for slot in slots:
        taint = rt.taints.get(slot)
        if taint is not None:
            found = taint if found is None else found | taint
    return found


def elementwise(inputs: Sequence[int], output: int, shape: tuple[int, ...]) -> Rule:
    """An output element is undetermined if any input element at its place is."""

    def rule(env: Env, rt: Holder) -> None:
        taint = union(rt, inputs)
        assign(rt, output, None if taint is None else taint.map(lambda m: m.expand(shape)))

    return rule


def _fresh(rt: Holder, output: int) -> Taint | None:
    """Returns what the operation that just ran entered itself; None if that is stale."""
    found = rt.taints.get(output)
    return Taint(found.labels, found.bits) if isinstance(found, Fresh) else None


def augmented(inputs: Sequence[int], output: int, shape: tuple[int, ...]) -> Rule:
    """As ``elementwise``, and what the operation just entered as ``Fresh`` besides."""

    def rule(env: Env, rt: Holder) -> None:
        fresh, taint = _fresh(rt, output), union(rt, inputs)
        if fresh is not None:
            taint = fresh if taint is None else taint | fresh
        assign(rt, output, None if taint is None else taint.map(lambda m: m.expand(shape)))

    return rule


def reshaped(source: int, output: int, fn: Move) -> Rule:
    """The labels move as the elements do."""

    def rule(env: Env, rt: Holder) -> None:
        taint = rt.taints.get(source)
        assign(rt, output, None if taint is None else taint.map(fn))

    return rule


def spread(sources: Sequence[int], outputs: Sequence[int], fn: Move) -> Rule:
    """Every output is undetermined where ``fn`` of the mask of all sources says so."""

    def rule(env: Env, rt: Holder) -> None:
        found = union(rt, sources)
        settled = None if found is None else found.spread(fn)
        for output in outputs:
            assign(rt, output, settled)

    return rule


def annihilated(x: int, y: int, output: int, absorbing: int | bool) -> Rule:
    """An operation with an absorbing operand (``0 * x``, ``False & x``): that one determines it.

    What the operation itself entered as ``Fresh`` stays.
    """

    def kept(taint: Taint, against: Taint | None, other: Any) -> Taint:
        # Where both are undetermined, neither value is known to be the absorbing one.
        alive = torch.as_tensor(other != absorbing)
        if against is not None:
            alive = alive | against.mask
        return Taint(torch.where(alive, taint.labels, 0), taint.bits)

    def rule(env: Env, rt: Holder) -> None:
        tx, ty, found = rt.taints.get(x), rt.taints.get(y), _fresh(rt, output)
        for part in (
            None if tx is None else kept(tx, ty, env[y]),
            None if ty is None else kept(ty, tx, env[x]),
        ):
            if part is not None:
                found = part if found is None else found | part
        assign(rt, output, None if found is None else settle(found.labels, found.bits))

    return rule


def selected(cond: int, x: int, y: int, output: int) -> Rule:
    """``where``: only the side that is selected counts, and the condition itself."""

    def rule(env: Env, rt: Holder) -> None:
        taints = [rt.taints.get(slot) for slot in (cond, x, y)]
        present = [t for t in taints if t is not None]
        if not present:
            rt.taints.pop(output, None)
            return
        choose = torch.as_tensor(env[cond])
        none = torch.zeros(choose.shape, dtype=torch.int64)
        of_cond, of_x, of_y = (none if t is None else t.labels for t in taints)
        labels = of_cond | torch.where(choose, of_x, of_y)
        assign(rt, output, settle(labels, union_bits(present)))

    return rule


def nothing(output: int) -> Rule:
    """The output is always determined."""

    def rule(env: Env, rt: Holder) -> None:
        rt.taints.pop(output, None)

    return rule


def own(env: Env, rt: Holder) -> None:
    """For operations that enter the taint of their results themselves."""


def union_bits(taints: Sequence[Taint]) -> int:
    """Returns every bit of several taints."""
    bits = 0
    for taint in taints:
        bits |= taint.bits
    return bits
