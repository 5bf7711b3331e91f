"""Who last touched the bytes of an allocation of emulated global memory, granule by granule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import PC_MASK, stamp
from mla_var3.emulator.diagnostics import Site
from mla_var3.emulator.words import Words

#: Granules of reads that are kept as they come.
MOST_LOGGED = 1 << 22
#: In place of a cluster: several have read a granule.
MANY = -1


@dataclass(frozen=True, slots=True)
class Access:
    """An access to global memory, or its last step where it is asynchronous.

    Attributes:
        words: What the cluster's warps know.
        cluster: Its number in the launch, from 1.
        warp: The warps that make it [n], or one.
        chain: What tells that it is over [n], or one; a warp itself for what threads do.
        number: Its place in that chain.
        detail: Lanes, or the warp of a unit.
        pc: Its instruction.
        writing: Whether it writes.
        atomic: Whether it conflicts with none of its like.
        equal: Which stores [n] leave what is there, or none.
    """

    words: Words
    cluster: int
    warp: Any
    chain: Any
    number: Any
    detail: Any
    pc: int
    writing: bool
    atomic: bool = False
    equal: Any = False

    @property
    def stamps(self) -> Any:
        return stamp(self.number, self.detail, self.pc)

    def who(self, i: int) -> str:
        """Whose the ``i``-th access is, in words."""
        chain, stamped = (int(x[i] if np.ndim(x) else x) for x in (self.chain, self.stamps))
        return self.words.clocks.who(chain, stamped)


class Last:
    """The last access of a kind to each granule: cluster (from 1, 0 is nobody), chain, stamp."""

    def __init__(self, count: int) -> None:
        self.cluster = np.zeros(count, np.int32)
        self.chain = np.zeros(count, np.int32)
        self.stamp = np.zeros(count, np.int64)
        self.atomic = np.zeros(count, bool)

    def note(self, g: Any, a: Access) -> None:
        """Granules ``g`` are accessed."""
        self.cluster[g], self.chain[g] = a.cluster, a.chain
        self.stamp[g], self.atomic[g] = a.stamps, a.atomic


class Touched:
    """Who last wrote and read each granule of an allocation.

    Reads of what nobody writes need no look. They are kept as they come until somebody does.
    """

    def __init__(self, count: int, shift: int) -> None:
        self.count, self.shift = count, shift
        self.writes: Last | None = None
        self.reads: Last | None = None
        self.log: list[tuple[Any, Access]] = []
        self.logged = 0

    def read(self, g: Any, a: Access) -> None:
        """Note a read."""
        self.log.append((g, a))
        self.logged += len(g)
        if self.writes is not None or self.logged > MOST_LOGGED:
            self.settle()

    def settle(self) -> None:
        """Sort the reads that were kept into granules."""
        if not self.log:
            return
        if self.reads is None:
            self.reads = Last(self.count)
        for g, a in self.log:
            before = self.reads.cluster[g]
            self.reads.note(g, a)
            away = (before != 0) & (before != a.cluster)
            if np.count_nonzero(away):
                self.reads.cluster[np.asarray(g)[away]] = MANY
        self.log.clear()
        self.logged = 0

    def write(self, g: Any, a: Access) -> None:
        """Note a write."""
        if self.writes is None:
            self.writes = Last(self.count)
        self.writes.note(g, a)

    def written(self) -> NDArray[np.int64]:
        """Granules that somebody wrote."""
        if self.writes is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.writes.cluster)


@dataclass(frozen=True)
class GridBefore:
    """A grid that the next one may overlap.

    Attributes:
        kernel: Its name.
        site: Where an instruction of it stands.
        touched: What it touched, by address of the allocation, of each process that ran it.
        running: The grid before it, where no thread of this one waited for that: it may still run
            when this one has ended.
    """

    kernel: str
    site: Callable[[int], Site]
    touched: Sequence[Mapping[int, Touched]]
    running: GridBefore | None = None

    def said(self, last: Last, granule: int) -> str:
        """The last access of a kind, in words."""
        at = self.site(int(last.stamp[granule]) & PC_MASK)
        return f"the grid before ({self.kernel:.40} at {at})"
