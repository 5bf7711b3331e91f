"""Emulated ``cp.async`` unit: runs threads' copies and the groups by which warps wait for them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mla_var3.emulator.clocks import CP_ASYNC, Event
from mla_var3.emulator.distinct import distinct
from mla_var3.emulator.units.base import Unit


@dataclass
class Groups:
    """Clock of the last copy of a warp, and of each committed group."""

    clock: int = 0
    committed: deque[int] = field(default_factory=deque)


class CpAsync(Unit):
    """The cp.async unit of a cluster."""

    name = "cp_async"

    def start(self) -> None:
        """A new cluster."""
        self.groups = [Groups() for _ in range(self.machine.clocks.warps)]

    def copy(self, to: Any, source: Any, count: int, size: Any, s: Any, pc: int) -> None:
        """Copy ``count`` bytes per thread, zeros from byte ``size`` on."""
        m = self.machine
        ids = m.ids[s]
        n = len(ids)
        at, good = m.memory.shared_at(np.broadcast_to(to, n), count, s, pc, "write")
        taken = np.full(n, count) if size is None else np.broadcast_to(size, n).astype(np.int64)
        taken = np.minimum(taken, count)
        for w in m.warps_of(s):
            self.groups[w].clock = m.clocks.issue(CP_ASYNC, w).number
        data = self._fetch(np.broadcast_to(source, n), taken, count, ids, pc)
        keep = slice(None) if good is None else good
        m.shared.bytes[at[keep][:, None] + np.arange(count)] = data[keep]
        if m.checks:
            self._checked(at[keep], count, m.warp[ids][keep], m.lane[ids][keep], pc)

    def _fetch(self, source: Any, taken: Any, count: int, ids: Any, pc: int) -> Any:
        """What threads read: each the first ``taken`` of ``count`` bytes, and zeros behind."""
        data = np.zeros((len(ids), count), np.uint8)
        for size in distinct(taken):
            if size > 0:
                self._read(data, np.flatnonzero(taken == size), source, size, count, ids, pc)
        return data

    def _read(
        self, data: Any, rows: Any, source: Any, size: int, count: int, ids: Any, pc: int
    ) -> None:
        """Read ``size`` bytes for the threads of ``rows``."""
        m, lanes = self.machine, ids[rows]
        for region, offset, part in m.memory.global_at(
            source[rows], size, lanes, pc, "read", count
        ):
            chosen = rows if part is None else rows[part]
            data[chosen, :size] = region.data[offset[:, None] + np.arange(size)]
            warp = m.warp[ids[chosen]]
            chain = CP_ASYNC * m.clocks.warps + warp
            events = chain, m.clocks.issued[chain]
            m.memory.note(region, offset, size, pc, False, lanes, False, part, events)

    def _checked(self, at: Any, count: int, warps: Any, lanes: Any, pc: int) -> None:
        m = self.machine
        granules = m.shared.granules(at, count)
        for w in distinct(warps):
            chain = CP_ASYNC * m.clocks.warps + w
            event = Event(chain, self.groups[w].clock, w, CP_ASYNC)
            own = granules[warps == w]
            m.shadow.unit_write(own.ravel(), event, pc, lanes[warps == w].repeat(own.shape[1]))

    def commit(self, s: Any) -> None:
        """``cp.async.commit_group``."""
        for w in self.machine.warps_of(s):
            self.groups[w].committed.append(self.groups[w].clock)

    def wait(self, most: int, s: Any) -> None:
        """``cp.async.wait_group``."""
        clocks = self.machine.clocks
        for w in self.machine.warps_of(s):
            mine = self.groups[w].committed
            while len(mine) > most:
                chain, number = CP_ASYNC * clocks.warps + w, mine.popleft()
                if clocks.seen[w, chain] < number:
                    clocks.finish(w, chain, number)
                    clocks.lanes.wait(w, number)

    def arrive(self, address: Any, noinc: bool, s: Any, pc: int) -> None:
        """``cp.async.mbarrier.arrive``: arrive once all earlier copies of the thread are done."""
        m, clocks = self.machine, self.machine.clocks
        n = len(m.ids[s])
        at = np.broadcast_to(m.shared.physical(address, m.cta_offset[s]), n)
        for place in distinct(at):
            here = at == place
            who = distinct(m.warp[s][here])
            barrier = m.sync.at(place, pc, who)
            if barrier is None:
                continue
            if m.model.copies_publish:
                # A copy that is over is no release of stores that its thread made beside it.
                tell = clocks.publish if m.model.arrivals_publish else clocks.pass_on
                tell(who, barrier.vector)
            for w in who:
                actor = CP_ASYNC * clocks.warps + w
                barrier.vector[actor] = max(int(barrier.vector[actor]), int(clocks.issued[actor]))
            if noinc:  # Without it the pending count is first raised by as many.
                m.sync.count_down(barrier, int(here.sum()), place, pc)
        clocks.tick(m.warps_of(s))
