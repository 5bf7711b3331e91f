"""Race detector of the interpreter: reports elements that two blocks touch without an order.

A region's *shadows* hold one entry per element: whether it was read or written, and in which
*phase* of which block. Blocks run here in one order and on a GPU in any, so an element that one
block writes and another touches is reported unless a release and an acquire order the two. A
release ends the phase of its block: what the block does afterwards is not published by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from mla_var3.interpreter.footprint import Footprint, Strided
from mla_var3.interpreter.launch_report import DiagnosticLog, SourceLine

if TYPE_CHECKING:
    from mla_var3.interpreter.arrays import ArrayArg, Region

#: Stands for several phases of several blocks in a shadow.
_MANY = -1


class Actor:
    """One block: the phases that it has had, and those of others that it runs after.

    Args:
        name: The block, for messages.
    """

    __slots__ = ("heard", "name", "own", "phase", "published")

    def __init__(self, name: str) -> None:
        self.name = name
        self.phase = 0
        self.own: set[int] = set()
        self.heard: set[int] = set()
        self.published = False  # whether the phase was released


class Hazards:
    """Shadows, and the order that releases and acquires make.

    Args:
        log: Where findings go.
    """

    def __init__(self, log: DiagnosticLog) -> None:
        self.log = log
        self.actor = Actor("")
        self._phases: list[Actor] = [self.actor]  # by number; 0 is nobody
        self._published: dict[tuple[int, int], set[int]] = {}

    def enter(self, actor: Actor) -> None:
        """Makes a block the one that accesses memory."""
        self.actor = actor
        if not actor.phase:
            self._begin(actor)

    def _begin(self, actor: Actor) -> None:
        actor.phase = len(self._phases)
        actor.own.add(actor.phase)
        actor.published = False
        self._phases.append(actor)

    def _begin_plain(self) -> None:
        """Begins a phase for a plain access that what was published does not cover.

        Atomic accesses begin none, for a kernel may do nothing else, a hundred thousand times.
        """
        if self.actor.published:
            self._begin(self.actor)

    # ------------------------------------------------------------------------------- accesses

    def load(
        self, array: ArrayArg, at: Footprint, itemsize: int, where: SourceLine, strong: bool
    ) -> torch.Tensor | None:
        """Records a read.

        Args:
            array: The array read.
            at: The elements, in units of ``itemsize`` bytes.
            itemsize: Bytes per element.
            where: Source line.
            strong: Whether other blocks may touch it at once (a relaxed or acquire access).

        Returns:
            For each element whether nothing ever wrote it, if any is such; else None.
        """
        region = array.region
        factor = itemsize // region.unit
        if not region.written:
            if isinstance(at, Strided):
                key = (at.offset, at.shape, at.strides, itemsize)
                if key in region.seen:
                    return _undefined(region, at, factor)
                region.seen.add(key)
            if region.read_shadow is None:
                region.read_shadow = region.shadow(torch.bool)
            (at.scaled(factor) if factor > 1 else at).put(region.read_shadow, True)
            return _undefined(region, at, factor)
        unscaled = at
        if factor > 1:
            at = at.scaled(factor)
        if region.read_shadow is None:
            region.read_shadow = region.shadow(torch.bool)
        at.put(region.read_shadow, True)
        self._check(region, "writer", region.writers, at, array, where, "reads", "wrote")
        if not strong:
            self._check(region, "atomic", region.updaters, at, array, where, "reads", "updated")
            self._begin_plain()
            self._mark(region, "reader", region.readers, at)
        return _undefined(region, unscaled, factor)

    def update(
        self, array: ArrayArg, at: Footprint, itemsize: int, where: SourceLine, strong: bool
    ) -> torch.Tensor | None:
        """Records an atomic update; returns what ``load`` does."""
        region = array.region
        factor = itemsize // region.unit
        if region.read_shadow is None:
            region.read_shadow = region.shadow(torch.bool)
        (at.scaled(factor) if factor > 1 else at).put(region.read_shadow, True)
        unwritten = _undefined(region, at, factor)
        self.store(array, at, itemsize, where, strong)
        return unwritten

    def store(
        self, array: ArrayArg, at: Footprint, itemsize: int, where: SourceLine, strong: bool
    ) -> None:
        """Records a write; ``strong`` means an atomic update or an ordered store."""
        region = array.region
        factor = itemsize // region.unit
        if factor > 1:
            at = at.scaled(factor)
        if region.write_shadow is None:
            region.write_shadow = region.shadow(torch.bool)
        at.put(region.write_shadow, True)
        if region.undefined is not None:
            at.put(region.undefined, False)
        self._check(region, "writer", region.writers, at, array, where, "writes", "wrote")
        self._check(region, "reader", region.readers, at, array, where, "writes", "reads")
        if strong:
            self._mark(region, "atomic", region.updaters, at)
            return
        self._check(region, "atomic", region.updaters, at, array, where, "writes", "updated")
        self._begin_plain()
        if region.writer is None:
            region.writer = region.shadow(torch.int32)
        at.put(region.writer, self.actor.phase)
        region.writers.add(self.actor.phase)

    # ---------------------------------------------------------------------------------- order

    def release(self, addresses: list[tuple[int, int]]) -> None:
        """Publishes what this block did and heard at synchronization elements."""
        actor = self.actor
        for address in addresses:
            self._published.setdefault(address, set()).update(actor.own, actor.heard)
        actor.published = True

    def acquire(self, addresses: list[tuple[int, int]]) -> None:
        """Orders this block after every phase that was published at one of the elements."""
        for address in addresses:
            self.actor.heard |= self._published.get(address, set())

    # -------------------------------------------------------------------------------- shadows

    def _mark(self, region: Region, shadow: str, phases: set[int], at: Footprint) -> None:
        """Enters this phase for elements; ``_MANY`` where several blocks are entered."""
        actor = self.actor
        entries = getattr(region, shadow)
        if entries is None:
            entries = region.shadow(torch.int32)
            setattr(region, shadow, entries)
        if phases <= actor.own:
            at.put(entries, actor.phase)
        else:
            old = at.of(entries)
            mine = (old == 0) | torch.isin(old, torch.tensor(list(actor.own), dtype=torch.int32))
            at.put(entries, torch.where(mine, actor.phase, _MANY).int())
        phases.add(actor.phase)

    def _check(
        self,
        region: Region,
        shadow: str,
        phases: set[int],
        at: Footprint,
        array: ArrayArg,
        where: SourceLine,
        does: str,
        did: str,
    ) -> None:
        """Reports elements that another block has entered in a shadow, unless ordered before."""
        actor = self.actor
        if not phases or phases <= actor.own:
            return
        # The sizes first: the difference takes as long as there are blocks, for each access.
        if len(phases) <= len(actor.own) + len(actor.heard) and (phases - actor.own) <= actor.heard:
            return
        entries = at.of(getattr(region, shadow))
        bad = (entries != 0) & (entries != actor.phase)
        known = actor.heard | actor.own
        if len(known) > 1:
            bad &= ~torch.isin(entries, torch.tensor(list(known), dtype=torch.int32))
        if actor.heard:
            bad &= entries != _MANY
        if not bool(bad.any()):
            return
        kind = "write-conflict" if (does, did) == ("writes", "wrote") else "read-write-hazard"
        if not self.log.seen(kind, where, array.name):
            self._report(kind, where, array, at, entries, bad, f"{does} {{}}, which {{}} {did}")

    def _report(
        self,
        kind: str,
        where: SourceLine,
        array: ArrayArg,
        at: Footprint,
        entries: torch.Tensor,
        bad: torch.Tensor,
        clause: str,
    ) -> None:
        first = int(bad.flatten().nonzero()[0])
        phase = int(entries.flatten()[first])
        offset = int(at.offsets().flatten()[first]) * array.region.unit // array.itemsize
        other = "another block" if phase == _MANY else self._phases[phase].name
        self.log.add(
            kind,
            where,
            f"block {self.actor.name} {clause.format(array.index_of(offset), other)} "
            "with nothing ordering the two; on a GPU they run in any order",
            about=array.name,
        )


def _undefined(region: Region, at: Any, factor: int) -> torch.Tensor | None:
    if region.undefined is None:
        return None
    found = (at.scaled(factor) if factor > 1 else at).of(region.undefined)
    if factor > 1:
        found = found.reshape(*found.shape[:-1], -1, factor).any(-1)
        found = found.reshape(at.shape) if isinstance(at, Strided) else found.flatten()
    return found.clone() if bool(found.any()) else None
