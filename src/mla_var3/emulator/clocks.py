"""Who has seen what: a vector clock per warp over all actors of a cluster.

An actor is a warp itself or one of the units that work for it: its wgmma reads, its bulk copies
(TMA), its cp.async. An access is stamped with its actor's clock; it is ordered before what a warp
does now if that warp's vector has reached the stamp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

GENERIC, WGMMA, BULK, CP_ASYNC = range(4)
UNITS = ("warp", "wgmma of warp", "bulk copy of warp", "cp.async of warp")


class Clocks:
    """Vector clocks of the warps of one cluster."""

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.actors = len(UNITS) * warps
        self.seen = np.zeros((warps, self.actors), np.int64)
        self.fenced = np.zeros((warps, self.actors), np.int64)
        self.barriers_seen = np.zeros((warps, self.actors), np.int64)
        self.issued = np.zeros(self.actors, np.int64)
        #: Per warp the clocks of its proxy fences, in order.
        self.fences: list[list[int]] = [[] for _ in range(warps)]
        self.own = np.arange(warps)
        self.start()

    def start(self) -> None:
        """A new cluster: all that came before is ordered, so that stamps need no clearing."""
        top = np.maximum(self.seen.max(0), self.issued)
        self.issued[:] = top
        self.seen[:] = top
        self.fenced[:] = top
        self.barriers_seen[:] = top
        for fences in self.fences:
            fences.clear()
        self.seen[self.own, self.own] += 1

    def tick(self, warps: Any) -> None:
        """Warps have released: what they do from now on is later."""
        for w in warps:
            self.seen[w, w] += 1

    def fence(self, warp: int) -> None:
        """A proxy fence: what the warp has seen is visible to asynchronous units."""
        self.fenced[warp] = self.seen[warp]
        self.fences[warp].append(int(self.seen[warp, warp]))
        self.seen[warp, warp] += 1

    def join(self, warps: list[int], vector: NDArray[Any]) -> None:
        """Warps, in order, have acquired what ``vector`` has seen."""
        for seen in self.of(warps):
            np.maximum(seen, vector, out=seen)

    def publish(self, warps: list[int], vector: NDArray[Any]) -> None:
        """Add what warps, in order, have seen to ``vector``."""
        for seen in self.of(warps):
            np.maximum(vector, seen.max(0), out=vector)

    def of(self, warps: list[int]) -> list[NDArray[np.int64]]:
        """What warps have seen: one view where they are neighbors, the usual case."""
        first, last = warps[0], warps[-1]
        if last - first == len(warps) - 1:
            return [self.seen[first : last + 1]]
        return [self.seen[w : w + 1] for w in warps]

    def issue(self, unit: int, warp: int) -> tuple[int, int]:
        """A unit starts work for a warp; its actor and its new clock."""
        actor = unit * self.warps + warp
        self.issued[actor] += 1
        return actor, int(self.issued[actor])

    def finish(self, warp: int, actor: int, clock: int) -> None:
        """A warp has waited for a unit's work."""
        if self.seen[warp, actor] < clock:
            self.seen[warp, actor] = clock

    def vector(self) -> NDArray[np.int64]:
        """A vector that has seen nothing."""
        return np.zeros(self.actors, np.int64)

    def name(self, actor: int, per_cta: int) -> str:
        """An actor in words."""
        unit, warp = divmod(int(actor), self.warps)
        cta, own = divmod(warp, per_cta)
        where = f" of CTA {cta} of the cluster" if self.warps > per_cta else ""
        return f"{UNITS[unit]} {own}{where}"

    def thread(self, warp: int, lane: int, per_cta: int) -> str:
        """A thread in words."""
        cta, own = divmod(warp, per_cta)
        where = f" of CTA {cta} of the cluster" if self.warps > per_cta else ""
        return f"thread {32 * own + lane} (warp {own}, lane {lane}){where}"
