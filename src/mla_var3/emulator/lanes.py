"""Which accesses of a warp's lanes its other lanes do not know of, for races within a warp.

A warp has one clock, and its lanes run in lockstep here. On a GPU they may part at any time, so
that an access of one lane is before an access of another only where something orders the two:
``bar.warp.sync``, a barrier, an mbarrier at which the one arrives and for which the other waits.
Each of these raises the number up to which lanes have met. An access with a larger number is known
to its own lane alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LANES = 32
#: Added to the lane of an access that a warp makes as one, such as ``ldmatrix``.
AS_ONE = 32
#: Stores to global memory that are kept, to hold them back from a release by other lanes.
MOST_STORES = 1024


def bits(low: int, high: int) -> int:
    """The warps from ``low`` to ``high`` as a mask."""
    return (2 << high) - (1 << low)


class Lanes:
    """What the lanes of each warp know of each other.

    Attributes:
        met: Numbers up to which each lane has met others of its warp [warps, lanes]. A lane knows
            an access of another if neither has met others at a smaller number only.
        waited: Numbers of each warp's cp.async up to which lanes waited for their own [warps].
        copied: Those up to which the lanes have met since [warps].
        touched: Number of each warp's last access by lanes, but for global reads [warps].
        wrote: Warps, as a mask, whose lanes wrote shared memory and may not have met since.
        read: The same of reads.
        stored: The same of writes to global memory.
        loaded: The same of reads of global memory.
        stores: Those writes: allocation, granules.
        withheld: Instructions that released for a warp, by the warp and by the number of accesses
            of its other lanes that they did not release.
    """

    def __init__(self, warps: int) -> None:
        self.met = np.zeros((warps, LANES), np.int64)
        self.waited = np.zeros(warps, np.int64)
        self.copied = np.zeros(warps, np.int64)
        self.touched = np.zeros(warps, np.int64)
        self.start(0, 0)

    def start(self, numbers: Any, copies: Any) -> None:
        """A new cluster: all numbers so far are those of clusters before."""
        self.met[:] = numbers
        self.waited[:] = self.copied[:] = copies
        self.wrote = self.read = self.stored = self.loaded = 0
        self.stores: list[tuple[Any, Any]] = []
        self.withheld: dict[tuple[int, int], int] = {}

    @property
    def open(self) -> int:
        """Warps, as a mask, of which a lane may have done something that others do not know."""
        return self.wrote | self.read | self.stored | self.loaded

    @property
    def tellable(self) -> int:
        """The same, of what a release tells of: all but reads of global memory."""
        return self.wrote | self.read | self.stored

    def settled(self, warp: int) -> bool:
        """Whether all lanes of a warp know what they did, but for reads of global memory."""
        if self.touched[warp] > self.met[warp].min() or self.waited[warp] > self.copied[warp]:
            return False
        left = ~(1 << warp)
        self.wrote, self.read, self.stored = self.wrote & left, self.read & left, self.stored & left
        return True

    def close(self, warps: int) -> None:
        """All lanes of these warps, a mask, have met."""
        self.wrote &= ~warps
        self.read &= ~warps
        self.stored &= ~warps
        self.loaded &= ~warps

    def told(self, warps: list[int], vector: NDArray[np.int64]) -> None:
        """Warps, in order, have waited for what ``vector`` knows: all lanes know of it."""
        first, last = warps[0], warps[-1]
        if last - first == len(warps) - 1:
            rows: Any = slice(first, last + 1)
        else:
            rows = np.array(warps)
        self.met[rows] = np.maximum(self.met[rows], vector[rows, None])
        self.copied[rows] = self.waited[rows]

    def bound(self, low: int, high: int) -> int:
        """All lanes of the warps from ``low`` to ``high`` have met others at this number."""
        return int(self.met[low : high + 1].min())

    def wait(self, warp: int, number: int) -> None:
        """Lanes of a warp have each waited for their own cp.async up to a number."""
        self.waited[warp] = number
        self.wrote |= 1 << warp

    def store(self, region: Any, g: Any, low: int, high: int, numbers: Any) -> None:
        """Lanes of the warps from ``low`` to ``high`` write granules of global memory.

        ``numbers`` are those of all warps.
        """
        self.touched[low : high + 1] = numbers[low : high + 1]
        if not self.stored or len(self.stores) >= MOST_STORES:
            self.stores.clear()
        self.stored |= bits(low, high)
        self.stores.append((region, g))

    def apart(self, warp: Any, lane: Any, other: Any, number: Any) -> NDArray[np.bool_]:
        """Which accesses lanes do not know of.

        Args:
            warp: Warps of both.
            lane: Lanes that do something now.
            other: Lanes of the accesses, with ``AS_ONE`` where a warp made one as a whole.
            number: Numbers of the accesses.
        """
        met = np.minimum(self.met[warp, lane], self.met[warp, other & LANES - 1])
        unknown: NDArray[np.bool_] = (number > met) & (other != lane) & (other < AS_ONE)
        return unknown
