"""Racing reads whose values nothing uses, such as those of threads that hold a copy of a tile.

A compiler lays a small tile several times over the threads of a CTA. All of them load it, and one
of each writes it back. The others' loads race with that write, and what they gave is dropped. So
the reads that raced are kept, and the launch runs again with other values there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Reads that are kept of a launch; of more than these nothing is excused.
MOST = 1 << 16
#: A cluster (from 1), an instruction, and the address of an allocation.
Place = tuple[int, int, int]


@dataclass
class RacingReads:
    """Plain reads of global memory that race with a plain write of their cluster.

    Attributes:
        writers: At each place the granules that were read so, and the warp that writes each.
        count: How many there are; past ``MOST`` none is kept.
        fill: In a further run: the byte of which what such a read gives consists.
    """

    writers: defaultdict[Place, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    count: int = 0
    fill: int | None = None

    def note(self, place: Place, granules: NDArray[np.int64], writers: NDArray[np.int64]) -> None:
        """Keep reads of granules that warps write."""
        self.count += len(granules)
        if self.count <= MOST:
            self.writers[place].update(zip(granules.tolist(), writers.tolist(), strict=True))

    def merge(self, other: RacingReads) -> None:
        """Take over those of another process."""
        self.count += other.count
        for place, writers in other.writers.items():
            self.writers[place].update(writers)

    @property
    def excusable(self) -> bool:
        """Whether there are some, and all of them are kept."""
        return 0 < self.count <= MOST

    def filled(
        self, place: Place, granules: NDArray[np.int64], warps: Any
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which accesses [n] are such reads, by their granules [n, k], and which leave a trace.

        The warp that writes a granule may read it before; that hides nobody else's read.
        """
        known = self.writers.get(place, {})
        rows = [[known.get(g) for g in row] for row in granules.tolist()]
        pairs = list(zip(rows, np.asarray(warps).tolist(), strict=True))
        filled = [any(who is not None and who != w for who in row) for row, w in pairs]
        plain = [all(who is None for who in row) for row in rows]
        return np.array(filled, bool), np.array(plain, bool)
