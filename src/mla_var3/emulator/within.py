"""What orders the lanes of a warp: where they meet, and whose accesses a release covers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import NUMBER, SPACES, detail
from mla_var3.emulator.lanes import AS_ONE, LANES, bits

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

#: What of a stamp is not its number.
REST = (1 << NUMBER) - 1


def meet(machine: Machine, s: Any) -> None:
    """Lanes of ``s`` wait for each other: each knows what the others of its warp did before."""
    lanes, seen = machine.clocks.lanes, machine.clocks.seen
    warps = _open(machine, s, machine.clocks.lanes.open | machine.clocks.lagging.warps)
    every = _all(machine, s) if warps else False
    for w in warps:
        number = int(seen[w, w])
        here = None if every else _lanes(machine, s, w)
        if here is None or len(here) >= machine.live[w]:
            lanes.met[w] = number
            lanes.close(1 << w)
        else:
            lanes.met[w, here] = number
        machine.clocks.lagging.meet(
            w, None if here is None or len(here) >= machine.live[w] else here
        )
        lanes.copied[w] = lanes.waited[w]
        seen[w, w] = number + 1


def withhold(machine: Machine, s: Any, pc: int) -> None:
    """Lanes of ``s`` have released, which says nothing of what other lanes of their warps did.

    A warp has one number for all lanes. So what the others did and have not told of gets a later
    number, as if they did it behind the release.
    """
    lanes, told = machine.clocks.lanes, machine.clocks.told
    warps = [w for w in _open(machine, s, lanes.tellable) if lanes.touched[w] > told[w][0]]
    if not warps or _all(machine, s):
        return
    for w in warps:
        here = _lanes(machine, s, w)
        if len(here) < machine.live[w]:
            _held_back(machine, w, here, pc)


def _open(machine: Machine, s: Any, lanes: int) -> list[int]:
    """Warps of ``s`` that are in a mask."""
    if not lanes:
        return []
    warps = machine.warps_of(s)
    return [w for w in warps if lanes >> w & 1] if lanes & bits(warps[0], warps[-1]) else []


def _all(machine: Machine, s: Any) -> bool:
    """Whether all live lanes of their warps are in ``s``."""
    live = machine.live
    return len(machine.ids[s]) == sum(live[w] for w in machine.warps_of(s))


def _lanes(machine: Machine, s: Any, warp: int) -> NDArray[np.int64]:
    """Lanes of a warp that are in ``s``."""
    chosen: NDArray[np.int64] = machine.lane[s][machine.warp[s] == warp]
    return chosen


def _held_back(machine: Machine, warp: int, here: NDArray[np.int64], pc: int) -> None:
    """Give a later number to what lanes other than ``here`` did since their last release."""
    clocks = machine.clocks
    number = int(clocks.seen[warp, warp])
    found = [_shared(machine, warp, here, number), _global(machine, warp, here, number)]
    for space, oldest in zip(SPACES, (found[0], *found), strict=True):
        fences = clocks.fences[space][warp]
        if oldest is not None and fences and fences[-1] >= oldest:
            fences.append(number)  # Behind what was held back, as one was before.
    if any(oldest is not None for oldest in found):
        clocks.lanes.withheld[warp, number] = pc
        clocks.seen[warp, warp] += 1


def _late(machine: Machine, warp: int, here: Any, stamps: Any) -> NDArray[np.bool_]:
    """Which accesses of a warp are of other lanes, untold, and unknown to lanes ``here``."""
    clocks = machine.clocks
    numbers, lane = stamps >> NUMBER, detail(stamps)
    inside = np.zeros(LANES, bool)
    inside[here] = True
    met = clocks.lanes.met[warp]
    known = np.minimum(met[lane & LANES - 1], met[here].max())
    late: NDArray[np.bool_] = (
        (numbers > np.maximum(known, clocks.told[warp][0]))
        & (lane < AS_ONE)
        & ~inside[lane & LANES - 1]
    )
    return late


def _shared(machine: Machine, warp: int, here: Any, number: int) -> int | None:
    """Hold back accesses to shared memory; the smallest number of a write that was."""
    last, oldest = machine.shared.last, None
    m, bound = last.granules, (machine.clocks.told[warp][0] + 1) << NUMBER
    rows = [(True, m.written), (False, m.read[warp])]
    for of_writes, row in rows[: 1 if machine.model.one_lane_frees else 2]:
        at = np.flatnonzero((row >= bound) & (m.writer == warp) if of_writes else row >= bound)
        at = at[_late(machine, warp, here, row[at])]
        if not len(at):
            continue
        first = int(row[at].min()) >> NUMBER
        oldest = first if oldest is None else min(oldest, first)
        row[at] = row[at] & REST | number << NUMBER
        if not of_writes:
            last.reads(range(warp, warp + 1), [number])
    return oldest


def _global(machine: Machine, warp: int, here: Any, number: int) -> int | None:
    """Hold back writes to global memory; the smallest number of one that was."""
    oldest, cluster = None, machine.words.cluster
    for region, g in machine.clocks.lanes.stores:
        if region.shadow is None or region.shadow.writes is None:
            continue
        t, at = region.shadow.writes, np.asarray(g)
        at = at[(t.cluster[at] == cluster) & (t.chain[at] == warp)]
        at = at[_late(machine, warp, here, t.stamp[at])]
        if len(at):
            first = int(t.stamp[at].min()) >> NUMBER
            oldest = first if oldest is None else min(oldest, first)
            t.stamp[at] = t.stamp[at] & REST | number << NUMBER
    return oldest
