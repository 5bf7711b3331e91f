"""Emulated global memory: allocations that a launch may touch, and races between its CTAs."""

from __future__ import annotations

import bisect
import ctypes
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.formats import U64
from mla_var3.emulator.options import Model
from mla_var3.emulator.report import Reporter

ALIGN = 16
#: Above this many bytes an allocation is not looked at for races between CTAs.
MOST_SHADOWED = 1 << 28
MANY = -1


class Region:
    """One allocation: where its bytes are, and who touched them in this launch.

    Args:
        base: Address that kernels know it by.
        size: Bytes.
        label: What reports call it, such as ``(128, 64) float16``.
        unwritten: Nothing has been written to it yet; reading it first is reported.
        content: Bytes to use in place of this process's memory at ``base``.
    """

    def __init__(
        self,
        base: int,
        size: int,
        label: str,
        unwritten: bool = False,
        content: bytes | None = None,
    ) -> None:
        self.base, self.size, self.label = base, size, label
        self.low = base & -ALIGN
        self.length = base + size - self.low
        if content is None:
            memory = (ctypes.c_uint8 * self.length).from_address(self.low)
            self._use(np.ctypeslib.as_array(memory))
        else:
            self._use(np.zeros(self.length, np.uint8))
            self.data[base - self.low :] = np.frombuffer(content, np.uint8)
        self.known = np.zeros(self.length, bool) if unwritten else None
        self.shadow: Touched | None = None
        #: Whatever keeps the memory alive.
        self.owner: object = None

    def _use(self, data: NDArray[np.uint8]) -> None:
        self.data = data
        self.views: dict[int, NDArray[Any]] = {
            w: data[: len(data) // w * w].view(f"u{w}") for w in (1, 2, 4, 8)
        } | {16: data[: len(data) // 16 * 16].view(np.complex128)}

    @property
    def end(self) -> int:
        return self.base + self.size

    def share(self) -> None:
        """Move the bytes where child processes write them too."""
        self.home = self.data
        self.pages = mmap.mmap(-1, max(self.length, 1))
        self._use(np.frombuffer(self.pages, np.uint8)[: self.length])
        self.data[:] = self.home

    def unshare(self) -> None:
        """Take the bytes back."""
        self.home[:] = self.data
        self._use(self.home)


@dataclass
class Touched:
    """Who last wrote and read each granule of an allocation: clusters from 1, 0 is nobody."""

    count: int
    writer: NDArray[np.int32] = field(init=False)
    epoch: NDArray[np.int32] = field(init=False)
    write_pc: NDArray[np.int32] = field(init=False)
    atomic: NDArray[np.bool_] = field(init=False)
    reader: NDArray[np.int32] = field(init=False)
    read_pc: NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("writer", "epoch", "write_pc", "reader", "read_pc"):
            setattr(self, name, np.zeros(self.count, np.int32))
        self.atomic = np.zeros(self.count, bool)

    def writers(self) -> NDArray[np.int64]:
        """Granules that somebody wrote."""
        return np.flatnonzero(self.writer)


class GlobalMemory:
    """The allocations of a launch, in order of address."""

    def __init__(
        self,
        regions: Sequence[Region],
        reporter: Reporter,
        model: Model,
        granule: int,
        checks: bool,
    ) -> None:
        self.regions = sorted(regions, key=lambda r: r.base)
        self.bases = [r.base for r in self.regions]
        self.reporter, self.model, self.checks = reporter, model, checks
        self.shift = granule.bit_length() - 1
        #: Cluster that runs, its epoch, and the epochs of others that it has acquired.
        self.me, self.epoch = 0, 1
        self.acquired: NDArray[np.int32] = np.zeros(1, np.int32)
        self.awaiting: NDArray[np.int32] = np.zeros(1, np.int32)
        self.has_acquired = False
        self.published: dict[int, NDArray[np.int32]] = {}

    def start(self, clusters: int) -> None:
        """A new launch of so many clusters: what was done before is ordered."""
        self.clusters = clusters
        self.acquired, self.awaiting = (np.zeros(clusters + 1, np.int32) for _ in range(2))
        self.published.clear()
        for region in self.regions:
            region.shadow = None

    def find(self, address: int) -> Region | None:
        """The allocation that holds an address."""
        i = bisect.bisect_right(self.bases, address) - 1
        return self.regions[i] if i >= 0 and address < self.regions[i].end else None

    def split(self, address: NDArray[np.uint64], count: int) -> Iterator[tuple[Region | None, Any]]:
        """Which of the accesses of ``count`` bytes fall into which allocation; None for no one."""
        low, high = int(address.min()), int(address.max())
        region = self.find(low)
        if region is not None and high + count <= region.end:
            yield region, None
            return
        index = np.searchsorted(np.array(self.bases, U64), address, "right").astype(np.int64) - 1
        ends = np.array([0, *(r.end for r in self.regions)], U64)
        inside = (index >= 0) & (address + U64(count) <= ends[index + 1])
        for i in np.unique(index[inside]).tolist():
            yield self.regions[i], inside & (index == i)
        if not inside.all():
            yield None, ~inside

    # Checks -----------------------------------------------------------------------------------
    def outside(self, pc: int, what: str, address: int, count: int, who: str) -> None:
        """Report an access to no allocation."""
        i = bisect.bisect_right(self.bases, address) - 1
        near = self.regions[max(i, 0)] if self.regions else None
        where = f"{what} of {count} bytes at {address:#x}"
        if near is not None:
            where += f", {address - near.base} bytes into the {near.size} bytes of {near.label}"
        self.reporter.add(
            "out-of-bounds", pc, f"global {where}", who=who, missing="a bounds check of the index"
        )

    def known(self, region: Region, start: Any, count: int, pc: int, who: str) -> None:
        """Report a read of bytes that nothing has written."""
        if region.known is None:
            return
        at = np.asarray(start).reshape(-1)
        fresh = ~region.known[at[:, None] + np.arange(count)].all(1)
        if fresh.any():
            offset = int(at[fresh][0]) - (region.base - region.low)
            self.reporter.add(
                "uninitialized-read",
                pc,
                f"global read of {count} bytes, {offset} bytes into {region.label}, that "
                "nothing has written",
                who=who,
            )

    def touch(
        self, region: Region, granules: Any, pc: int, writing: bool, who: str, atomic: bool = False
    ) -> None:
        """Note accesses by the running cluster and report those unordered to another's."""
        if not self.checks or self.clusters == 1 or region.size > MOST_SHADOWED:
            return
        if region.shadow is None:
            region.shadow = Touched((region.length >> self.shift) + 1)
        t = region.shadow
        self._against_writes(t, region, granules, pc, writing, who, atomic)
        if writing:
            self._against_reads(t, region, granules, pc, who, atomic)
            t.writer[granules], t.epoch[granules] = self.me, self.epoch
            t.write_pc[granules], t.atomic[granules] = pc, atomic
        elif not atomic:  # Synchronizing reads do not conflict with the writes they wait for.
            reader = t.reader[granules]
            t.reader[granules] = np.where((reader == 0) | (reader == self.me), self.me, MANY)
            t.read_pc[granules] = pc

    def _against_writes(
        self, t: Touched, region: Region, g: Any, pc: int, writing: bool, who: str, atomic: bool
    ) -> None:
        writer = t.writer[g]
        bad = (writer != 0) & (writer != self.me)
        if not bad.any():
            return
        if atomic:
            bad &= ~t.atomic[g]
        if self.has_acquired:
            bad &= t.epoch[g] > self.acquired[np.where(bad, writer, 0)]
        if bad.any():
            q = int(np.asarray(g)[bad][0])
            self._race(region, q, pc, int(t.write_pc[q]), int(t.writer[q]), who, "written", writing)

    def _against_reads(
        self, t: Touched, region: Region, g: Any, pc: int, who: str, atomic: bool
    ) -> None:
        reader = t.reader[g]
        bad = (reader != 0) & (reader != self.me)
        if self.has_acquired:  # Whose read it was is not kept where there were many.
            bad &= False
        if atomic:
            bad &= ~t.atomic[g]
        if bad.any():
            q = int(np.asarray(g)[bad][0])
            self._race(region, q, pc, int(t.read_pc[q]), int(t.reader[q]), who, "read", True)

    def _race(
        self,
        region: Region,
        q: int,
        pc: int,
        other: int,
        cluster: int,
        who: str,
        was: str,
        writing: bool,
    ) -> None:
        offset = (q << self.shift) - (region.base - region.low)
        first = "several clusters" if cluster == MANY else f"cluster {cluster - 1}"
        now = "writes" if writing else "reads"
        self.reporter.add(
            "global-race",
            pc,
            f"global byte {offset} of {region.label} is {was} by {first}, and cluster "
            f"{self.me - 1} {now} it",
            other,
            who,
            first,
            "a release by the first (fence and atomic) that the second acquires, or another kernel",
        )

    # Order ------------------------------------------------------------------------------------
    def acquire(self, addresses: Any, at_once: bool = True) -> None:
        """The running cluster has read these words; if not ``at_once``, a fence must follow."""
        target = self.acquired if at_once else self.awaiting
        for address in np.unique(addresses).tolist():
            if (seen := self.published.get(address)) is not None:
                np.maximum(target, seen, out=target)
                self.has_acquired |= at_once

    def fence(self) -> int:
        """A fence of the GPU: what was read is acquired; the epoch that may be published."""
        if self.awaiting.any():
            np.maximum(self.acquired, self.awaiting, out=self.acquired)
            self.awaiting[:] = 0
            self.has_acquired = True
        self.epoch += 1
        return self.epoch - 1

    def release(self, addresses: Any, epoch: int) -> None:
        """The running cluster publishes its writes up to ``epoch`` by writing these words."""
        mine = self.acquired.copy()
        mine[self.me] = epoch
        for address in np.unique(addresses).tolist():
            old = self.published.get(address)
            self.published[address] = mine if old is None else np.maximum(old, mine)
        self.epoch += 1
