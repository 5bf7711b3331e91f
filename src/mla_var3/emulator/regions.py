"""Emulated global memory: finds the allocation of an address, and races between CTAs of a grid."""

from __future__ import annotations

import bisect
import ctypes
import mmap
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import BULK, GRID, NUMBER, PC_MASK, Vector, detail
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.formats import U64
from mla_var3.emulator.lanes import bits
from mla_var3.emulator.options import Model
from mla_var3.emulator.order import (
    AFTER_READ,
    AFTER_WRITE,
    TOLD_FOR_OTHERS,
    WAITED_FOR_OTHERS,
    WITHIN,
    unfenced,
)
from mla_var3.emulator.touched import MANY, Access, GridBefore, Last, Touched
from mla_var3.emulator.unused import RacingReads
from mla_var3.emulator.words import Board

ALIGN = 16
#: Above this many bytes an allocation is not looked at for races.
MOST_SHADOWED = 1 << 28
BETWEEN_CLUSTERS = (
    "a release by the first (fence and atomic) that the second acquires, or another kernel"
)


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


class GlobalMemory:
    """The allocations of a launch, in order of address."""

    def __init__(
        self,
        regions: Sequence[Region],
        reporter: Reporter,
        model: Model,
        granule: int,
        checks: bool,
        before: GridBefore | None = None,
        reads: RacingReads | None = None,
    ) -> None:
        #: Reads that raced, in an earlier run or in this one.
        self.reads = RacingReads() if reads is None else reads
        self.regions = sorted(regions, key=lambda r: r.base)
        self.bases = [r.base for r in self.regions]
        self.reporter, self.model, self.checks = reporter, model, checks
        self.shift = granule.bit_length() - 1
        #: Clusters that have not begun, in order; those that run may claim them.
        self.waiting: deque[tuple[int, tuple[int, int, int]]] = deque()
        self.before = before
        #: Writes so far that may have changed something.
        self.changes = 0
        self.start()

    def start(self) -> None:
        """A new launch: what was done before is ordered."""
        self.board = Board(overlaps=self.before is not None)
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

    def touch(self, region: Region, g: Any, a: Access) -> None:
        """Note an access to granules ``g`` [n], and report what it races with."""
        if not self.checks or region.size > MOST_SHADOWED:
            return
        if region.shadow is None:
            region.shadow = Touched((region.length >> self.shift) + 1, self.shift)
        if self.before is not None:
            self._overlaps(self.before, region, g, a)
        t = region.shadow
        lanes = a.words.clocks.lanes
        if a.chain is a.warp and len(a.warp) and (lanes.stored or lanes.loaded):
            self._among_lanes(t, region, np.asarray(g), a)
        if t.writes is not None:
            self._against(t.writes, region, g, a, "written")
            self._of_lagging(t.writes, region, g, a, "written")
            self._fenced(t.writes, region, g, a)
        if a.writing:
            t.settle()
            if t.reads is not None:
                self._against(t.reads, region, g, a, "read")
                self._of_lagging(t.reads, region, g, a, "read")
            t.write(g, a)
            if a.chain is a.warp and len(a.warp):
                numbers = np.diagonal(a.words.clocks.seen)
                lanes.store(region, g, int(a.warp[0]), int(a.warp[-1]), numbers)
        elif not a.atomic:  # Synchronizing reads do not conflict with the writes they wait for.
            t.read(g, a)
            if a.chain is a.warp and len(a.warp):
                lanes.loaded |= bits(int(a.warp[0]), int(a.warp[-1]))

    def _among_lanes(self, t: Touched, region: Region, g: Any, a: Access) -> None:
        """Report an access that nothing orders after one of another lane of its warp."""
        lanes = a.words.clocks.lanes
        warps = bits(int(a.warp[0]), int(a.warp[-1]))
        found = [("written", t.writes)] if lanes.stored & warps else []
        if a.writing and lanes.loaded & warps:
            t.settle()
            found.append(("read", t.reads))
        for was, last in found:
            if last is None:
                continue
            stamps = last.stamp[g]
            late = (last.cluster[g] == a.cluster) & (last.chain[g] == a.warp)
            late &= lanes.apart(a.warp, a.detail, detail(stamps), stamps >> NUMBER)
            if a.atomic:
                late &= ~last.atomic[g]
            if was == "written":
                late &= ~np.asarray(a.equal)
            if np.count_nonzero(late):
                self._within(last, region, int(np.argmax(late)), g, a, was)

    def _within(self, last: Last, region: Region, i: int, g: Any, a: Access, was: str) -> None:
        """Report a race of two lanes of one warp."""
        q = int(g[i])
        before, now = self._who(last, q, a), a.who(i)
        self.reporter.add(
            "warp-race",
            a.pc,
            f"{self._place(region, q)} is {was} by {before} and "
            f"{'written' if a.writing else 'read'} by {now}, and nothing orders these two lanes",
            int(last.stamp[q]) & PC_MASK,
            now,
            before,
            WITHIN,
        )

    def _overlaps(self, before: GridBefore, region: Region, g: Any, a: Access) -> None:
        """Report an access to what the grid before touched, when it may still run."""
        early = np.broadcast_to(a.words.is_early(a.warp), np.shape(g))
        if np.count_nonzero(early):
            self._overlapped(before, region, g, a, early)
        older = before.running
        while older is not None:  # Waiting for the one before is no waiting for these.
            self._overlapped(older, region, g, a, np.ones(np.shape(g), bool))
            older = older.running

    def _overlapped(
        self, before: GridBefore, region: Region, g: Any, a: Access, early: NDArray[np.bool_]
    ) -> None:
        """The same of one grid: ``early`` are the accesses that may come before its end."""
        for touched in before.touched:
            t = touched.get(region.base)
            if t is None:
                continue
            there = np.asarray(g) << self.shift >> t.shift
            t.settle()
            for last, was in ((t.writes, "written"), (t.reads if a.writing else None, "read")):
                if last is None:
                    continue
                hit = early & (last.cluster[there] != 0) & ~(a.atomic & last.atomic[there])
                if np.count_nonzero(hit):
                    i = int(np.argmax(hit))
                    self._early(before, region, i, g, a, f"{was} by {before.said(last, there[i])}")
                    return

    def _early(
        self, before: GridBefore, region: Region, i: int, g: Any, a: Access, was: str
    ) -> None:
        who = a.who(i)
        self.reporter.add(
            "global-race",
            a.pc,
            f"{self._place(region, int(np.asarray(g)[i]))} is {was}, and {who} "
            f"{'writes' if a.writing else 'reads'} it while that may still run",
            who=who,
            missing=AFTER_WRITE[GRID],
        )

    def _against(self, last: Last, region: Region, g: Any, a: Access, was: str) -> None:
        """Report an access that nothing orders after the last ones."""
        cluster = last.cluster[g]
        if not np.count_nonzero(cluster):
            return
        chain, number = last.chain[g], last.stamp[g] >> NUMBER
        away = (cluster != 0) & (cluster != a.cluster)
        bad = away | (number > a.words.clocks.seen[a.warp, chain])
        if a.atomic:
            bad &= ~last.atomic[g]
        if was == "written":
            bad &= away | ~np.asarray(a.equal)
        if np.count_nonzero(bad & away):
            self._learned(bad, cluster, chain, number, a)
        if np.count_nonzero(bad):
            if self.reads.fill is None:
                self._note(bad, last, region, np.asarray(g), a, was)
            self._race(last, region, int(np.argmax(bad)), g, a, was)

    def _of_lagging(self, last: Last, region: Region, g: Any, a: Access, was: str) -> None:
        """Report what nothing orders for lanes that have not waited, as another of their warp."""
        words = a.words
        lagging = words.clocks.lagging
        if a.chain is not a.warp or not len(a.warp) or a.atomic:
            return
        if not lagging.warps & bits(int(a.warp[0]), int(a.warp[-1])):
            return
        cluster = last.cluster[g]
        if not ((cluster != 0) & ((cluster != a.cluster) | (last.chain[g] != a.warp))).any():
            return
        for i, known in lagging.each(a.warp, a.detail):
            q = int(np.asarray(g)[i])
            its, chain = int(last.cluster[q]), int(last.chain[q])
            number, vector = int(last.stamp[q]) >> NUMBER, known
            if not its or (its == a.cluster and chain == int(a.warp[i])):
                continue
            if its not in (a.cluster, MANY):
                found = words.of(its, known)
                vector = np.zeros(1, np.int64) if found is None else found
            if its == MANY or number <= int(_at(vector, np.array(chain))):
                continue
            if was == "written" and np.broadcast_to(a.equal, np.shape(g))[i]:
                continue
            self._race(last, region, i, g, a, was, WAITED_FOR_OTHERS)
            return

    def _note(
        self,
        bad: NDArray[np.bool_],
        last: Last,
        region: Region,
        g: NDArray[np.int64],
        a: Access,
        was: str,
    ) -> None:
        """Keep racing reads by threads of what other threads of their cluster write."""
        if a.atomic or a.writing == (was == "written"):
            return
        warp, chain = np.broadcast_to(a.warp, bad.shape), last.chain[g]
        plain = bad & (last.cluster[g] == a.cluster) & (np.broadcast_to(a.chain, bad.shape) == warp)
        plain &= (chain < a.words.clocks.warps) & ~last.atomic[g]
        pcs = last.stamp[g] & PC_MASK if a.writing else np.full(bad.shape, a.pc)
        for pc in np.unique(pcs[plain]).tolist():
            here = plain & (pcs == pc)
            writers = (warp if a.writing else chain)[here]
            self.reads.note((a.cluster, pc, region.base), g[here], writers)

    def _learned(
        self, bad: NDArray[np.bool_], cluster: Any, chain: Any, number: Any, a: Access
    ) -> None:
        """Clear what the warps have learned of other clusters through words."""
        words, warp = a.words, np.broadcast_to(a.warp, bad.shape)
        away = bad & (cluster != a.cluster)
        for w, other in sorted({*zip(warp[away].tolist(), cluster[away].tolist(), strict=True)}):
            here = away & (warp == w) & (cluster == other)
            if other == MANY:
                if words.learned:  # Whose they were is not kept.
                    bad &= ~here
                continue
            vector = words.of(other, words.clocks.seen[w])
            if vector is not None:
                bad &= ~(here & (number <= _at(vector, chain)))

    def _fenced(self, last: Last, region: Region, g: Any, a: Access) -> None:
        """Bytes that threads wrote reach an asynchronous unit only past a proxy fence."""
        words = a.words
        clocks = words.clocks
        if a.writing or np.ndim(a.chain) or clocks.units[a.chain] != BULK:
            return
        cluster, chain = last.cluster[g], last.chain[g]
        number = last.stamp[g] >> NUMBER
        missing = np.zeros(len(cluster), bool)
        for c in np.unique(cluster[(cluster > 0) & (chain < clocks.warps)]).tolist():
            seen, fenced = clocks.seen[a.warp], clocks.fenced_global[a.warp]
            if c != a.cluster:
                own = words.of(c, seen)
                if own is None:  # Nothing orders the two, which is reported.
                    continue
                late = words.of(c, fenced)
                seen, fenced = own, np.zeros_like(own) if late is None else late
            generic = (cluster == c) & (chain < clocks.warps)
            missing |= unfenced(
                seen, fenced, self.model, chain, number, generic, self.board.fences[c]
            )
        if np.count_nonzero(missing):
            self._no_fence(last, region, int(np.argmax(missing)), g, a)

    def compare(self, region: Region, a: Touched, b: Touched) -> None:
        """Report granules that clusters of one process wrote and those of another touched."""
        written = a.written()
        for last in (b.writes, b.reads):
            if last is None or a.writes is None:
                continue
            hit = last.cluster[written] != 0
            if last is b.writes:
                hit &= ~(a.writes.atomic[written] & last.atomic[written])
            if np.count_nonzero(hit):
                q = int(written[hit][0])
                does = "writes" if last is b.writes else "reads"
                self.reporter.add(
                    "global-race",
                    int(last.stamp[q]) & PC_MASK,
                    f"{self._place(region, q)} is written by cluster {a.writes.cluster[q] - 1}, "
                    f"and cluster {last.cluster[q] - 1} {does} it",
                    int(a.writes.stamp[q]) & PC_MASK,
                    missing=BETWEEN_CLUSTERS,
                )

    def _no_fence(self, last: Last, region: Region, i: int, g: Any, a: Access) -> None:
        q = int(np.asarray(g)[i])
        wrote, reads = self._who(last, q, a), a.who(i)
        self.reporter.add(
            "missing-proxy-fence",
            a.pc,
            f"{self._place(region, q)} was written by {wrote} and is read by {reads} without "
            "fence.proxy.async",
            int(last.stamp[q]) & PC_MASK,
            reads,
            wrote,
            "fence.proxy.async.global between the write and the read",
        )

    def _race(
        self,
        last: Last,
        region: Region,
        i: int,
        g: Any,
        a: Access,
        was: str,
        lacks: str = "",
    ) -> None:
        q = int(np.asarray(g)[i])
        first, now = self._who(last, q, a), a.who(i)
        unit = int(last.chain[q])
        units = a.words.clocks.units
        after = AFTER_WRITE if was == "written" else AFTER_READ
        own = last.cluster[q] == a.cluster
        missing = after[units[unit]] if own else BETWEEN_CLUSTERS
        release = a.words.clocks.lanes.withheld.get((unit, int(last.stamp[q]) >> NUMBER))
        if own and release is not None:
            missing = f"{TOLD_FOR_OTHERS}, at {self.reporter.site(release)}"
        self.reporter.add(
            "global-race",
            a.pc,
            f"{self._place(region, q)} is {was} by {first}, and {now} of cluster "
            f"{a.cluster - 1} {'writes' if a.writing else 'reads'} it",
            int(last.stamp[q]) & PC_MASK,
            now,
            first,
            lacks or missing,
        )

    def _place(self, region: Region, q: int) -> str:
        offset = (q << self.shift) - (region.base - region.low)
        return f"global byte {offset} of {region.label}"

    def _who(self, last: Last, q: int, a: Access) -> str:
        """Who made the last access to a granule, in words."""
        cluster = int(last.cluster[q])
        if cluster == MANY:
            return "several clusters"
        who = ""
        if cluster == a.cluster:
            who = a.words.clocks.who(int(last.chain[q]), int(last.stamp[q])) + " of "
        return f"{who}cluster {cluster - 1}"


def _at(vector: Vector, chain: NDArray[np.int64]) -> Vector:
    """Numbers of chains; 0 of those that the vector is too short for."""
    return np.where(chain < len(vector), vector[np.minimum(chain, len(vector) - 1)], 0)
