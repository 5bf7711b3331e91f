"""Vector clocks for race detection: tell whether a warp knows that an earlier event is over.

Whatever touches memory is an event: what a thread does now, or a step of an asynchronous operation
(it has read its source; what it wrote is there). PTX lets nobody wait for an operation. It lets a
thread wait for the first so many events of a chain: a warp's own program order, its groups of
wgmma, of cp.async, a thread's bulk groups (read, or complete), the phases of an mbarrier. So an
event is a chain and a number, and what a warp knows is one number per chain: an event is over for
it if its number is not above. Operations of different chains end in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.lagging import Lagging
from mla_var3.emulator.lanes import LANES, Lanes, bits

Vector = NDArray[np.int64]
GENERIC, WGMMA, CP_ASYNC, BULK, STORE, STORED, GRID, ABROAD = range(8)
TENSOR, TENSOR_LOAD, TENSOR_STORE = range(8, 11)
UNITS = (
    "warp",
    "wgmma of warp",
    "cp.async of warp",
    "bulk copy of warp",
    "bulk store of warp",
    "bulk store of warp",
    "the grid before, seen by warp",
    "another cluster, seen by warp",
    "tcgen05 of warp",
    "tcgen05.ld of warp",
    "tcgen05.st of warp",
)
#: Units with a chain per warp; the chains of others are made when they are first used.
OF_WARPS = 3
#: Chains of other kinds that there is room for at first, per CTA.
ROOM = 48
#: Spaces that a proxy fence may be for: shared memory of the CTA itself, of others of its cluster.
SPACES = ("shared", "cluster", "global")
#: A stamp is an event's number, the lane (of a thread, and of a cp.async) or the warp (of any other
#: unit), and the instruction (see ``ptx.MAX_INSTRUCTIONS``).
PC_BITS, DETAIL_BITS = 20, 10
PC_MASK, DETAIL_MASK = (1 << PC_BITS) - 1, (1 << DETAIL_BITS) - 1
NUMBER = PC_BITS + DETAIL_BITS


def stamp(number: Any, detail: Any, pc: int) -> Any:
    """An event's number, who it was, and the instruction, as one integer."""
    return number << NUMBER | detail << PC_BITS | pc


def detail(stamped: Any) -> Any:
    """The lane or the warp of a stamp, or those of several."""
    return stamped >> PC_BITS & DETAIL_MASK


class Event(NamedTuple):
    """A step of an asynchronous operation.

    Attributes:
        chain: What tells of it.
        number: Its place in that chain.
        warp: The warp that issued the operation.
        unit: What does the work.
    """

    chain: int
    number: int
    warp: int
    unit: int


class Clocks:
    """What the warps of one cluster know.

    Args:
        warps: Warps of the cluster.
        per_cta: Warps of each of its CTAs.
        chains: How many chains there is room for at least.
    """

    def __init__(self, warps: int, per_cta: int, chains: int = 0) -> None:
        self.warps, self.per_cta = warps, per_cta
        self.own = np.arange(warps)
        self.chains: dict[Hashable, int] = {}
        #: What does the work that each chain tells of.
        self.units = [u for u in range(OF_WARPS) for _ in range(warps)]
        self.room = max(chains, len(self.units) + ROOM * (warps // per_cta))
        #: Whoever keeps vectors makes them longer when there are more chains than was thought.
        self.keepers: list[Callable[[], None]] = []
        self.seen, self.fenced_shared, self.fenced_global, self.barriers_seen = (
            np.zeros((warps, self.room), np.int64) for _ in range(4)
        )
        self.issued = np.zeros(self.room, np.int64)
        self.lanes, self.lagging = Lanes(warps), Lagging()
        self.start()

    def start(self) -> None:
        """A new cluster: all that came before is ordered, so that stamps need no clearing."""
        top = np.maximum(self.seen.max(0), self.issued)
        self.issued[:] = top
        self.seen[:] = top
        self.fenced_shared[:] = self.fenced_global[:] = top
        self.barriers_seen[:] = top
        #: Per warp its numbers at its proxy fences, in order, for each space.
        self.fences: dict[str, list[list[int]]] = {
            space: [[] for _ in range(self.warps)] for space in SPACES
        }
        copies = CP_ASYNC * self.warps
        self.lanes.start(top[: self.warps, None], top[copies : copies + self.warps])
        self.lagging.start()
        #: Per warp its numbers at its last two releases.
        self.told = [(int(n), int(n)) for n in top[: self.warps]]
        self.seen[self.own, self.own] += 1
        #: Each warp's number when it began.
        self.began = self.seen[self.own, self.own].copy()

    # Chains -----------------------------------------------------------------------------------
    def chain(self, key: Hashable, unit: int) -> int:
        """The chain of that name, which tells of the work of a unit."""
        found = self.chains.get(key)
        if found is None:
            found = self.chains[key] = len(self.units)
            self.units.append(unit)
            if found == self.room:
                self._grow()
        return found

    def _grow(self) -> None:
        self.room *= 2
        for name in ("seen", "fenced_shared", "fenced_global", "barriers_seen"):
            old = getattr(self, name)
            setattr(self, name, np.pad(old, ((0, 0), (0, self.room - old.shape[1]))))
        self.issued = self.fit(self.issued)
        self.lagging.fit(self)
        for keeper in self.keepers:
            keeper()

    def fit(self, vector: Vector) -> Vector:
        """A vector with room for all chains."""
        return np.pad(vector, (0, self.room - len(vector)))

    def vector(self) -> Vector:
        """A vector that knows nothing."""
        return np.zeros(self.room, np.int64)

    def issue(self, unit: int, warp: int) -> Event:
        """The next event of a unit that has a chain per warp."""
        chain = unit * self.warps + warp
        self.issued[chain] += 1
        return Event(chain, int(self.issued[chain]), warp, unit)

    def finish(self, warp: int, chain: Any, number: Any) -> None:
        """A warp has waited for an event of a chain, or of several, and so for all before it."""
        if self.lagging.alone or self.lagging.warps >> warp & 1:
            self.lagging.finishes(warp, self.seen[warp], chain, number)
        self.seen[warp, chain] = np.maximum(self.seen[warp, chain], number)

    # Warps ------------------------------------------------------------------------------------
    def tick(self, warps: Any) -> None:
        """Warps have released: what they do from now on is later."""
        told, seen = self.told, self.seen
        for w in warps:
            number = int(seen[w, w])
            told[w] = told[w][1], number
            seen[w, w] = number + 1

    def fence(self, warp: int, spaces: tuple[str, ...]) -> None:
        """A proxy fence: what the warp knows is visible to asynchronous units."""
        for space in spaces:
            if space != "cluster":  # What a unit reads is in its own CTA.
                known = self.fenced_shared if space == "shared" else self.fenced_global
                known[warp] = self.seen[warp]
            self.fences[space][warp].append(int(self.seen[warp, warp]))
        self.seen[warp, warp] += 1

    def join(self, warps: list[int], vector: Vector) -> None:
        """Warps, in order, have learned what ``vector`` knows."""
        if self.lagging.alone or self.lagging.warps & bits(warps[0], warps[-1]):
            for w in warps:
                self.lagging.joins(w, self.seen[w], vector)
        for seen in self.of(warps):
            np.maximum(seen, vector, out=seen)
        if self.lanes.open & bits(warps[0], warps[-1]):
            # What a lane had told of, all who waited know.
            self.lanes.told(warps, vector)

    def publish(self, warps: list[int], vector: Vector) -> None:
        """Add what warps, in order, know to ``vector``."""
        for seen in self.of(warps):
            np.maximum(vector, seen.max(0), out=vector)

    def pass_on(self, warps: list[int], vector: Vector) -> None:
        """Add what warps know of others to ``vector``, and not what they did themselves."""
        for w in warps:
            own = int(vector[w])
            np.maximum(vector, self.seen[w], out=vector)
            vector[w] = own

    def of(self, warps: list[int]) -> list[Vector]:
        """What warps know: one view where they are neighbors, the usual case."""
        first, last = warps[0], warps[-1]
        if last - first == len(warps) - 1:
            return [self.seen[first : last + 1]]
        return [self.seen[w : w + 1] for w in warps]

    # Words ------------------------------------------------------------------------------------
    def name(self, unit: int, warp: int) -> str:
        """A warp, or what works for it, in words."""
        cta, own = divmod(int(warp), self.per_cta)
        return f"{UNITS[unit]} {own}{self._where(cta)}"

    def thread(self, warp: int, lane: int) -> str:
        """A thread in words."""
        cta, own = divmod(int(warp), self.per_cta)
        return f"thread {32 * own + int(lane)} (warp {own}, lane {int(lane)}){self._where(cta)}"

    def _where(self, cta: int) -> str:
        return f" of CTA {cta} of the cluster" if self.warps > self.per_cta else ""

    def who(self, chain: int, stamped: int) -> str:
        """Who left a stamp whose number is of a chain, in words."""
        unit = self.units[chain]
        who = detail(stamped)
        if unit == GENERIC:
            return self.thread(chain, who & LANES - 1)
        return self.name(unit, chain % self.warps if unit == CP_ASYNC else who)
