"""Emulated shared memory of a cluster: holds the bytes, and finds races and missing fences.

``SharedMemory`` is the memory; ``Shadow`` keeps the last accesses to each piece of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import CP_ASYNC, NUMBER, PC_MASK, Clocks, Event, detail, stamp
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.granules import Granules, Level
from mla_var3.emulator.lanes import AS_ONE, bits
from mla_var3.emulator.options import Model
from mla_var3.emulator.order import (
    AFTER_COPY,
    AFTER_READ,
    AFTER_WRITE,
    TOLD_FOR_OTHERS,
    WAITED_FOR_OTHERS,
    WITHIN,
    unfenced,
)
from mla_var3.emulator.residency import Residency
from mla_var3.emulator.windows import SHARED_START

OFFSET = 0xFFFFFF
#: What was done to bytes, in words.
DONE = {"read": "read", "write": "written"}


class SharedMemory:
    """Bytes of all CTAs of a cluster, one after the other, each ``size`` long."""

    def __init__(self, ctas: int, end: int, granule: int, clocks: Clocks, fill: int) -> None:
        self.ctas, self.end, self.fill = ctas, end, fill
        self.size = -(-end // 1024) * 1024
        total = self.size * ctas
        self.bytes = np.zeros(total, np.uint8)
        self.views: dict[int, NDArray[Any]] = {
            w: self.bytes.view(f"u{w}") for w in (1, 2, 4, 8)
        } | {16: self.bytes.view(np.complex128)}
        #: Every address names its CTA, also those of a CTA's own memory.
        self.named = False
        self.clocks = clocks
        self.granule = granule
        self.shift = granule.bit_length() - 1
        self.last = Granules(total // granule, granule, clocks)
        #: Per 16 bytes one more than the swizzle with which a tensor map last wrote them.
        self.swizzles = np.zeros(total // 16, np.int8)

    def start(self) -> None:
        """Poison everything for the next cluster."""
        self.bytes[:] = self.fill
        self.last.start()
        self.swizzles[:] = 0

    def physical(self, address: Any, cta_offset: Any) -> NDArray[np.int64]:
        """Where addresses lie in ``bytes``; those from ``mapa`` name a CTA in their top byte."""
        low = (np.asarray(address).astype(np.int64)) & 0xFFFFFFFF
        rank = low >> 24
        if self.named:
            return np.minimum(rank, self.ctas - 1) * self.size + (low & OFFSET)
        if self.ctas == 1:
            return np.where(rank == 1, low & OFFSET, low) if np.count_nonzero(rank) else low
        return np.where(rank == 0, cta_offset, (rank - 1) * self.size) + (low & OFFSET)

    def outside(self, physical: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
        """Which accesses of ``count`` bytes leave the window that the launch asked for."""
        low = physical % self.size if self.ctas > 1 else physical
        return (low < SHARED_START) | (low + count > self.end) | (physical >= len(self.bytes))

    def granules(self, physical: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Granules of accesses: [n, k]."""
        first = physical >> self.shift
        k = max(1, count >> self.shift)
        return first[:, None] + np.arange(k) if k > 1 else first[:, None]


class Shadow:
    """Checks of accesses to shared memory."""

    def __init__(
        self,
        memory: SharedMemory,
        clocks: Clocks,
        reporter: Reporter,
        model: Model,
        residency: Residency,
    ) -> None:
        self.memory, self.clocks, self.reporter, self.model = memory, clocks, reporter, model
        self.residency = residency

    def lives(self, g: NDArray[np.int64], warp: Any, pc: int) -> None:
        """Threads of warps [n] touch granules [n, k]: is the CTA there whose they are?"""
        m = self.memory
        if m.ctas > 1 and len(g):
            self.residency.threads(g[:, 0] * m.granule // m.size, warp, pc)

    # Threads ----------------------------------------------------------------------------------
    def thread_read(
        self,
        g: NDArray[np.int64],
        warp: NDArray[np.int64],
        lane: NDArray[np.int64],
        pc: int,
        as_one: bool = False,
    ) -> None:
        """Lanes ``lane`` [n] of warps ``warp`` [n], in order, read granules ``g`` [n, k].

        With ``as_one`` each warp reads as a whole, and its lanes have met.
        """
        if not len(g):
            return
        self.lives(g, warp, pc)
        low, high = int(warp[0]), int(warp[-1])
        lanes, warps = self.clocks.lanes, bits(low, high)
        self._after_writes("read", g, warp, lane, pc)
        if lanes.wrote & warps:
            self._after_lanes("read", g, warp, lane, pc)
        if self.clocks.lagging.warps & warps:
            self._of_lagging("read", g, warp, lane, pc)
        last = self.memory.last
        if as_one:
            lane = lane + AS_ONE
        else:
            lanes.read |= warps
        numbers = np.diagonal(self.clocks.seen)[low : high + 1]
        lanes.touched[low : high + 1] = numbers
        last.reads(range(low, high + 1), numbers)
        last.granules.read[warp[:, None], g] = self.stamp(warp, lane, pc)

    def stamp(self, warp: Any, lane: Any, pc: int) -> NDArray[np.int64]:
        """Stamps [n, 1] of what lanes of warps do now."""
        return stamp(self.clocks.seen[warp, warp], lane, pc)[:, None]

    def thread_write(
        self,
        g: NDArray[np.int64],
        warp: NDArray[np.int64],
        lane: NDArray[np.int64],
        pc: int,
        same: Callable[[], NDArray[np.bool_]] | None = None,
        as_one: bool = False,
    ) -> None:
        """Lanes ``lane`` [n] of warps ``warp`` [n] write granules ``g`` [n, k].

        ``same`` tells which of them [n] leave what is there, if anybody asks. With ``as_one`` each
        warp writes as a whole, and its lanes have met.
        """
        self.lives(g, warp, pc)
        self._after_writes("write", g, warp, lane, pc, same)
        self._among_lanes(g, warp, lane, pc, same)
        self._after_reads(g, warp, lane, pc)
        if len(warp) and self.clocks.lagging.warps & bits(int(warp[0]), int(warp[-1])):
            self._of_lagging("write", g, warp, lane, pc)
        self._write(g, warp, lane, pc, as_one)

    def thread_atomic(
        self,
        g: NDArray[np.int64],
        warp: NDArray[np.int64],
        lane: NDArray[np.int64],
        pc: int,
        plain: NDArray[np.bool_],
    ) -> None:
        """Lanes change granules as one; ``plain`` are those that no atomic wrote last."""
        self.lives(g, warp, pc)
        if plain.any():
            self._after_writes("read", g[plain], warp[plain], lane[plain], pc)
            self._among_lanes(g[plain], warp[plain], lane[plain], pc)
        self._after_reads(g, warp, lane, pc)
        self._write(g, warp, lane, pc)

    def _among_lanes(
        self,
        g: NDArray[np.int64],
        warp: NDArray[np.int64],
        lane: NDArray[np.int64],
        pc: int,
        same: Callable[[], NDArray[np.bool_]] | None = None,
    ) -> None:
        """Report a write that nothing orders after what another lane of its warp did."""
        lanes = self.clocks.lanes
        if not len(g) or not lanes.open:
            return
        low, high = int(warp[0]), int(warp[-1])
        warps = bits(low, high)
        if lanes.wrote & warps:
            self._after_lanes("write", g, warp, lane, pc, same)
        if not lanes.read & warps:
            return
        bound = lanes.bound(low, high) + 1
        stamps = self.memory.last.granules.read[warp[:, None], g]
        if not np.count_nonzero(stamps >= bound << NUMBER):
            return
        late = lanes.apart(warp[:, None], lane[:, None], detail(stamps), stamps >> NUMBER)
        if np.count_nonzero(late):
            i, j = np.argwhere(late)[0]
            stamped, now = int(stamps[i, j]), self.clocks.thread(warp[i], lane[i])
            self._within("written", g[i, j], "read", int(warp[i]), stamped, now, pc)

    def _after_lanes(
        self,
        what: str,
        g: NDArray[np.int64],
        warp: NDArray[np.int64],
        lane: NDArray[np.int64],
        pc: int,
        same: Callable[[], NDArray[np.bool_]] | None = None,
    ) -> None:
        """Report what nothing orders after the last write by another lane of the same warp."""
        m, clocks, lanes = self.memory.last.granules, self.clocks, self.clocks.lanes
        low, high, mine = int(warp[0]), int(warp[-1]), warp[:, None]
        writer = m.writer[g]
        own = writer == mine
        copied = np.count_nonzero(lanes.copied[low : high + 1] != lanes.waited[low : high + 1])
        if not copied and not np.count_nonzero(own):
            return
        stamps = m.written[g]
        own &= stamps >= (lanes.bound(low, high) + 1) << NUMBER
        if not copied and not np.count_nonzero(own):
            return
        its, other, number = lane[:, None], detail(stamps), stamps >> NUMBER
        late = own & lanes.apart(mine, its, other, number)
        late |= (
            (writer == CP_ASYNC * clocks.warps + mine)
            & (other != its)
            & (number > lanes.copied[mine])
            & (number <= lanes.waited[mine])
        )
        if same is not None and self.model.equal_stores and np.count_nonzero(late):
            late &= ~((stamps & PC_MASK == pc) & same()[:, None])
        if np.count_nonzero(late):
            i, j = np.argwhere(late)[0]
            stamped, chain = int(stamps[i, j]), int(writer[i, j])
            does, now = DONE[what], self.clocks.thread(warp[i], lane[i])
            by_copy = chain >= self.clocks.warps
            self._within(does, g[i, j], "written", int(warp[i]), stamped, now, pc, by_copy)

    def _within(
        self,
        does: str,
        q: Any,
        was: str,
        warp: int,
        stamped: int,
        now: str,
        pc: int,
        copied: bool = False,
    ) -> None:
        """Report a race of two lanes of one warp; ``stamped`` is the earlier access."""
        before = self.clocks.who(warp, stamped)
        self.reporter.add(
            "warp-race",
            pc,
            f"shared {self.place(q)} is {was} by {'a cp.async of ' if copied else ''}{before} and "
            f"{does} by {now}, and nothing orders these two lanes",
            stamped & PC_MASK,
            now,
            before,
            AFTER_COPY if copied else WITHIN,
        )

    def _after_writes(
        self,
        what: str,
        g: NDArray[np.int64],
        warp: NDArray[np.int64],
        lane: NDArray[np.int64],
        pc: int,
        same: Callable[[], NDArray[np.bool_]] | None = None,
    ) -> None:
        """Report what nothing orders after the last write, and a read of what has none."""
        m = self.memory.last.each(g)
        if self._all_know(what, g, warp):
            return
        bad = (m.written[g] >> NUMBER) > self.clocks.seen[warp[:, None], m.writer[g]]
        if same is not None and self.model.equal_stores and np.count_nonzero(bad):
            here = (m.written[g] & PC_MASK == pc) & (m.writer[g] < self.clocks.warps)
            bad &= ~(here & same()[:, None])
        if np.count_nonzero(bad):
            i, j = np.argwhere(bad)[0]
            self._race(what, pc, g[i, j], self.clocks.thread(warp[i], lane[i]))
        known = m.known[g]
        if what == "read" and np.count_nonzero(known) < known.size:
            i, j = np.argwhere(~known)[0]
            self._poison(pc, g[i, j], self.clocks.thread(warp[i], lane[i]))

    def _all_know(self, what: str, g: NDArray[np.int64], warp: NDArray[np.int64]) -> bool:
        """Whether all warps know all writes to the blocks of granules ``g``: the usual case.

        Whole blocks take less time than granules by index. False where that is not seen at once.
        """
        last = self.memory.last
        if (blocks := last.around(g)) is None:
            return False
        m, size = last.granules, last.blocks.size
        seen = self.clocks.seen[warp.min() : warp.max() + 1].min(0)
        written = m.written.reshape(-1, size)[blocks] >> NUMBER
        if np.count_nonzero(written > seen[m.writer.reshape(-1, size)[blocks]]):
            return False
        return what == "write" or bool(m.known.reshape(-1, size)[blocks].all())

    def _of_lagging(
        self,
        what: str,
        g: NDArray[np.int64],
        warp: NDArray[np.int64],
        lane: NDArray[np.int64],
        pc: int,
    ) -> None:
        """Report what nothing orders for lanes that have not waited, as another of their warp."""
        m = self.memory.last.granules
        rows = self.memory.last.rows[: None if what == "write" else 0]
        for i, known in self.clocks.lagging.each(warp, lane):
            q, own = g[i], int(warp[i])
            now = self.clocks.thread(own, lane[i])
            late = ((m.written[q] >> NUMBER) > known[m.writer[q]]) & (m.writer[q] != own)
            if np.count_nonzero(late):
                self._race(what, pc, int(q[np.argmax(late)]), now, WAITED_FOR_OTHERS)
                return
            stamps = m.read[rows[:, None], q[None]] >> NUMBER
            unread = (stamps > known[rows][:, None]) & (rows != own)[:, None]
            if np.count_nonzero(unread):
                a, j = np.argwhere(unread)[0]
                self._race_read(pc, int(q[j]), int(rows[a]), now, WAITED_FOR_OTHERS)
                return

    def _after_reads(
        self, g: NDArray[np.int64], warp: NDArray[np.int64], lane: NDArray[np.int64], pc: int
    ) -> None:
        """Report a write that nothing orders after a read."""
        if not len(warp):
            return
        last = self.memory.last
        m, rows = last.granules, last.unknown(warp.min(), warp.max())
        if len(rows) and (blocks := last.around(g)) is not None:
            latest = m.read.reshape(len(m.read), -1, last.blocks.size)[rows[:, None], blocks]
            seen = self.clocks.seen[warp.min() : warp.max() + 1, rows].min(0)
            rows = rows[(latest.max((1, 2)) >> NUMBER) > seen]
        if not len(rows):
            return
        stamps = m.read[rows[:, None, None], g[None]] >> NUMBER
        late = stamps > self.clocks.seen[warp[None, :], rows[:, None]][:, :, None]
        if np.count_nonzero(late):
            a, i, j = np.argwhere(late)[0]
            self._race_read(pc, g[i, j], int(rows[a]), self.clocks.thread(warp[i], lane[i]))

    def _write(
        self,
        g: NDArray[np.int64],
        warp: NDArray[np.int64],
        lane: NDArray[np.int64],
        pc: int,
        as_one: bool = False,
    ) -> None:
        m = self.memory.last.granules
        if as_one:
            lane = lane + AS_ONE
        elif len(warp):
            lanes, low, high = self.clocks.lanes, int(warp[0]), int(warp[-1])
            lanes.wrote |= bits(low, high)
            lanes.touched[low : high + 1] = np.diagonal(self.clocks.seen)[low : high + 1]
        m.writer[g] = warp[:, None]
        m.written[g] = self.stamp(warp, lane, pc)
        m.known[g] = True

    # Units ------------------------------------------------------------------------------------
    def unit_read(self, g: Any, event: Event, pc: int, lane: int | None = None) -> None:
        """A unit reads granules ``g`` (an index or a slice) for a lane of its warp."""
        if lane is not None:
            self._for_lane("read", g, event, pc, lane)
        self.may_read(g, event.warp, event.unit, pc)
        self.mark_read(g, [event], pc)

    def may_read(self, g: Any, warp: int, unit: int, pc: int) -> None:
        """Check a read by a unit, without noting it."""
        (m, g), seen = self.memory.last.at(g), self.clocks.seen[warp]
        writer, written = m.writer[g], m.written[g] >> NUMBER
        bad = written > seen[writer]
        if np.count_nonzero(bad):
            self._race("read", pc, self._first(m, g, bad), self.clocks.name(unit, warp))
        known = m.known[g]
        if unit != CP_ASYNC:
            self._fenced(m, g, writer, written, known, warp, unit, pc)
        if np.count_nonzero(known) < known.size:
            self._poison(pc, self._first(m, g, ~known), self.clocks.name(unit, warp))

    def clear(self, g: Any, warps: range) -> bool:
        """Whether one chain wrote granules ``g``, and these warps know all of it; the usual case.

        Then a read by their units needs no closer look.
        """
        (m, g), clocks = self.memory.last.at(g), self.clocks
        writer, known = m.writer[g], m.known[g]
        who = int(writer[0])
        if who < clocks.warps or np.count_nonzero(writer != who):
            return False
        if np.count_nonzero(known) < len(known):
            return False
        seen = min(clocks.seen[warps.start : warps.stop, who].tolist())
        return bool(int(m.written[g].max()) >> NUMBER <= seen)

    def mark_read(self, g: Any, events: list[Event], pc: int) -> None:
        """Note a read by events whose chains follow each other."""
        stamps = [stamp(e.number, e.warp, pc) for e in events]
        first, n = events[0].chain, len(events)
        self.memory.last.reads(range(first, first + n), [e.number for e in events])
        m, g = self.memory.last.at(g)
        if n == 1:
            m.read[first, g] = stamps[0]
        else:
            m.read[first : first + n, g] = np.array(stamps)[:, None]

    def _for_lane(self, what: str, g: Any, event: Event, pc: int, lane: int) -> None:
        """Report what a unit does for a lane, and nothing orders after other lanes of its warp."""
        clocks, warp = self.clocks, event.warp
        lanes = clocks.lanes
        if not (lanes.wrote | (lanes.read if what == "write" else 0)) >> warp & 1:
            return
        if lanes.settled(warp):
            return
        m, q = self.memory.last.at(g)
        rows = [("written", m.written[q], m.writer[q] == warp)]
        if what == "write":
            rows.append(("read", m.read[warp, q], np.True_))
        for was, stamps, own in rows:
            late = own & lanes.apart(warp, lane, detail(stamps), stamps >> NUMBER)
            if np.count_nonzero(late):
                i = int(np.argmax(late))
                place, now = (
                    self._first(m, q, late),
                    f"{clocks.name(event.unit, warp)} for lane {lane}",
                )
                self._within(DONE[what], place, was, warp, int(stamps[i]), now, pc)
                return

    def unit_write(self, g: Any, event: Event, pc: int, lane: Any = None) -> None:
        """A unit writes granules ``g`` for a lane of its warp, a cp.async for several."""
        memory, seen = self.memory, self.clocks.seen[event.warp]
        if memory.ctas > 1:
            first = g.start if isinstance(g, slice) else g[0]
            self.residency.unit(int(first) * memory.granule // memory.size, event, pc)
        by = event.warp
        if event.unit == CP_ASYNC and lane is not None:
            by = lane
        elif lane is not None:
            self._for_lane("write", g, event, pc, lane)
        m, g = memory.last.at(g)
        bad = (m.written[g] >> NUMBER) > seen[m.writer[g]]
        if np.count_nonzero(bad):
            who = self.clocks.name(event.unit, event.warp)
            self._race("write", pc, self._first(m, g, bad), who)
        rows = memory.last.unknown(event.warp, event.warp)
        if len(rows):
            stamps = m.read[rows, g] if isinstance(g, slice) else m.read[rows[:, None], g[None]]
            late = (stamps >> NUMBER) > seen[rows][:, None]
            if np.count_nonzero(late):
                a = int(np.argmax(late.any(1)))
                q, who = self._first(m, g, late[a]), self.clocks.name(event.unit, event.warp)
                self._race_read(pc, q, int(rows[a]), who)
        m.writer[g] = event.chain
        m.written[g] = stamp(event.number, by, pc)
        m.known[g] = True
        if m is memory.last.granules:
            memory.last.gather(g)

    def _fenced(
        self,
        m: Level,
        g: Any,
        writer: Any,
        written: Any,
        known: Any,
        warp: int,
        unit: int,
        pc: int,
    ) -> None:
        """Bytes that threads wrote reach an asynchronous unit only past a proxy fence."""
        generic = (writer < self.clocks.warps) & known
        if not np.count_nonzero(generic):
            return
        clocks = self.clocks
        seen, fenced = clocks.seen[warp], clocks.fenced_shared[warp]
        away = generic & self._away(m, g, writer)
        missing = np.zeros(generic.shape, bool)
        for space, these in (("shared", generic & ~away), ("cluster", away)):
            if np.count_nonzero(these):
                fences = clocks.fences[space]
                missing |= unfenced(seen, fenced, self.model, writer, written, these, fences)
        if missing.any():
            q = self._first(m, g, missing)
            reader, wrote = self.clocks.name(unit, warp), self._wrote(q)
            self.reporter.add(
                "missing-proxy-fence",
                pc,
                f"shared {self.place(q)} was written by {wrote} and is read by {reader} without "
                "fence.proxy.async",
                self.write_pc(q),
                reader,
                wrote,
                "fence.proxy.async between the write and the barrier before the read",
            )

    def _away(self, m: Level, g: Any, warp: Any) -> Any:
        """Which pieces ``g`` of a level are shared memory of another CTA than that of a warp."""
        memory = self.memory
        if memory.ctas == 1:
            return False
        pieces = np.arange(g.start, g.stop) if isinstance(g, slice) else g
        return pieces * m.size * memory.granule // memory.size != warp // self.clocks.per_cta

    # Words ------------------------------------------------------------------------------------
    def place(self, granule: Any) -> str:
        """A granule as an address."""
        return f"{int(granule) * self.memory.granule % self.memory.size:#x}"

    def write_pc(self, granule: int) -> int:
        """The instruction that last wrote a granule."""
        return self.memory.last.last_write(granule)[1] & PC_MASK

    @staticmethod
    def _first(m: Level, g: Any, mask: NDArray[np.bool_]) -> int:
        """The first granule of pieces ``g`` of a level for which a mask holds."""
        i = int(np.argmax(mask))
        return m.size * int(g.start + i if isinstance(g, slice) else g.ravel()[i])

    def _wrote(self, q: int) -> str:
        """Who last wrote a granule, in words."""
        return self.clocks.who(*self.memory.last.last_write(q))

    def _race(self, what: str, pc: int, q: int, after: str, missing: str = "") -> None:
        wrote = self._wrote(q)
        self.reporter.add(
            "race",
            pc,
            f"shared {self.place(q)} is written by {wrote} and "
            f"{DONE[what]} by {after}, and nothing orders the two",
            self.write_pc(q),
            after,
            wrote,
            missing or self._missing(AFTER_WRITE, *self.memory.last.last_write(q)),
        )

    def _missing(self, after: dict[int, str], chain: int, stamped: int) -> str:
        """What would have ordered something after an access."""
        release = self.clocks.lanes.withheld.get((chain, stamped >> NUMBER))
        if release is not None:
            return f"{TOLD_FOR_OTHERS}, at {self.reporter.site(release)}"
        return after[self.clocks.units[chain]]

    def _race_read(self, pc: int, q: int, chain: int, after: str, missing: str = "") -> None:
        stamped = self.memory.last.last_read(chain, q)
        read = self.clocks.who(chain, stamped)
        self.reporter.add(
            "race",
            pc,
            f"shared {self.place(q)} is still read by {read} when {after} writes it",
            stamped & PC_MASK,
            after,
            read,
            missing or self._missing(AFTER_READ, chain, stamped),
        )

    def _poison(self, pc: int, q: int, who: str) -> None:
        self.reporter.add(
            "uninitialized-read",
            pc,
            f"shared {self.place(q)} is read and nothing has written it",
            who=who,
            missing="a write, or a wait for the copy that brings it",
        )
