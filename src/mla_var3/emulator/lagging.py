"""Lanes that know less than their warp: another lane has waited, and they have not met it since.

A warp has one vector of what it knows. A lane that waits by itself raises it for its whole warp,
and the others keep here what they knew before, until they wait for the same or meet one who has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.lanes import LANES

if TYPE_CHECKING:
    from mla_var3.emulator.clocks import Clocks
    from mla_var3.emulator.machine import Machine

Vector = NDArray[np.int64]


class Lagging:
    """What lanes know that lag behind their warps.

    Attributes:
        warps: Warps that have such a lane, as a mask.
        alone: Lanes that learn something now, of warps of which others do not.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new cluster: nobody has waited for anything."""
        self.warps = 0
        self.alone: dict[int, list[int]] = {}
        self._known: dict[int, dict[int, Vector]] = {}

    def fit(self, clocks: Clocks) -> None:
        """There are more chains than was thought."""
        for known in self._known.values():
            for lane, vector in known.items():
                known[lane] = clocks.fit(vector)

    def joins(self, warp: int, seen: Vector, vector: Vector) -> None:
        """A warp that knows ``seen`` learns ``vector``, or the lanes of it that are alone."""
        for lane in self._learning(warp, seen):
            self._known[warp][lane] = np.maximum(self._known[warp][lane], vector)

    def finishes(self, warp: int, seen: Vector, chain: Any, number: Any) -> None:
        """The same of the events of a chain, or of several."""
        for lane in self._learning(warp, seen):
            vector = self._known[warp][lane].copy()
            vector[chain] = np.maximum(vector[chain], number)
            self._known[warp][lane] = vector

    def _learning(self, warp: int, seen: Vector) -> list[int]:
        """Lanes that lag behind and learn something now; those that do not lag from now on."""
        here = self.alone.get(warp)
        if here is None:
            return [*self._known.get(warp, ())]
        known = self._known.setdefault(warp, {})
        self.warps |= 1 << warp
        again = [lane for lane in here if lane in known]
        if len(known) + len(here) - len(again) < LANES:
            before = seen.copy()
            known.update((n, before) for n in range(LANES) if n not in known and n not in here)
        return again

    def meet(self, warp: int, lanes: NDArray[np.int64] | None) -> None:
        """Lanes of a warp, or all, tell each other what they know."""
        known = self._known.get(warp)
        if not known:
            return
        here = [*known] if lanes is None else lanes.tolist()
        if lanes is None or any(lane not in known for lane in here):
            for lane in here:
                known.pop(lane, None)
        else:
            both = np.max([known[lane] for lane in here], axis=0)
            known.update(dict.fromkeys(here, both))
        if not known:
            del self._known[warp]
            self.warps &= ~(1 << warp)

    def of(self, warp: int, lane: int) -> Vector | None:
        """What a lane knows that lags behind; None where it knows what its warp does."""
        return self._known[warp].get(lane) if self.warps >> warp & 1 else None

    def each(self, warp: Any, lane: Any) -> Iterator[tuple[int, Vector]]:
        """Of lanes [n] of warps [n] those that lag behind: which they are, and what they know."""
        for i, (w, one) in enumerate(zip(warp.tolist(), lane.tolist(), strict=True)):
            if self.warps >> w & 1 and (vector := self._known[w].get(one)) is not None:
                yield i, vector


@contextmanager
def waiting(machine: Machine, s: Any) -> Iterator[None]:
    """What is learned within, threads ``s`` have waited for: other lanes have not."""
    lagging = machine.clocks.lagging
    if machine.model.lane_waits or not machine.checks:
        yield
        return
    lagging.alone = _parted(machine, s)
    try:
        yield
    finally:
        lagging.alone = {}


def _parted(machine: Machine, s: Any) -> dict[int, list[int]]:
    """Lanes of ``s`` of those warps that have others too."""
    warps, live = machine.warps_of(s), machine.live
    if len(machine.ids[s]) == sum(live[w] for w in warps):
        return {}
    lanes: dict[int, list[int]] = {}
    for w, lane in zip(machine.warp[s].tolist(), machine.lane[s].tolist(), strict=True):
        lanes.setdefault(w, []).append(lane)
    return {w: here for w, here in lanes.items() if len(here) < live[w]}
