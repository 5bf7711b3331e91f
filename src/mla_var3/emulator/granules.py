"""Keeps the last accesses to each granule of shared memory, those of a block together while alike.

Copies and products touch whole tiles, of which all granules then have one state. A block of
granules keeps it once until a thread touches a part of the block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import Clocks

#: Bytes of a block: the unit in which shared memory is laid out for a CTA.
BLOCK = 1024
#: Granules in more pieces than these are looked at by index.
MOST_RANGES = 8
#: Blocks are looked at whole where granules by index are at least one in so many of theirs.
SPREAD = 4


class Level:
    """The last accesses to pieces of memory.

    Attributes:
        size: Granules of a piece.
        writer: The chain of the last write [pieces].
        written: Its stamp [pieces].
        known: Whether anything wrote a piece [pieces].
        read: Stamps of the last read by each chain [chains, pieces]; memory of rows that nobody
            touches is never used.
    """

    def __init__(self, count: int, size: int, room: int) -> None:
        self.size = size
        self.writer = np.zeros(count, np.int32)
        self.written = np.zeros(count, np.int64)
        self.known = np.zeros(count, bool)
        self.read = np.zeros((room, count), np.int64)


class Granules:
    """The last accesses to the granules of shared memory.

    Args:
        count: Granules.
        each: Bytes of one.
        clocks: Chains of events.
    """

    def __init__(self, count: int, each: int, clocks: Clocks) -> None:
        self.clocks = clocks
        self.shift = (BLOCK // each).bit_length() - 1
        self.granules = Level(count, 1, clocks.room)
        self.blocks = Level(count >> self.shift, 1 << self.shift, clocks.room)
        #: Blocks whose granules all are as the block says.
        self.whole = np.ones(count >> self.shift, bool)
        #: Chains that have read something.
        self.rows: NDArray[np.int64] = np.zeros(0, np.int64)
        self.row_set: set[int] = set()
        #: The last read of anything by each chain, as its number.
        self.latest = clocks.vector()
        clocks.keepers.append(self._grow)

    def _grow(self) -> None:
        for level in (self.granules, self.blocks):
            old, level.read = level.read, np.zeros((self.clocks.room, len(level.known)), np.int64)
            level.read[self.rows] = old[self.rows]
        self.latest = self.clocks.fit(self.latest)

    def start(self) -> None:
        """A new cluster: nothing is written."""
        self.blocks.known[:] = False
        self.whole[:] = True

    def reads(self, chains: range, numbers: Any) -> None:
        """Chains read something, as these events of theirs."""
        if not self.row_set.issuperset(chains):
            self.row_set.update(chains)
            self.rows = np.array(sorted(self.row_set), np.int64)
        latest = self.latest[chains.start : chains.stop]
        np.maximum(latest, numbers, out=latest)

    def unknown(self, low: int, high: int) -> NDArray[np.int64]:
        """Chains of whose last read some warp of ``low`` to ``high`` does not know: seldom many."""
        late = self.latest > self.clocks.seen[low : high + 1].min(0)
        return np.flatnonzero(late)

    def at(self, g: Any) -> tuple[Level, Any]:
        """Where the state of granules ``g`` (an index or a slice) is: a level, and which pieces."""
        if isinstance(g, slice) and (blocks := self._blocks(g)) is not None:
            part = self.whole[blocks]
            if np.count_nonzero(part) == len(part):
                return self.blocks, blocks
        return self.each(g), g

    def _blocks(self, g: slice) -> slice | None:
        """The blocks that granules are, if they are whole ones."""
        if (g.start | g.stop) & (self.blocks.size - 1):
            return None
        return slice(g.start >> self.shift, g.stop >> self.shift)

    def each(self, g: Any) -> Level:
        """The granules, of which those of all blocks that ``g`` touches have their own state."""
        if isinstance(g, slice):
            low = g.start >> self.shift
            whole = self.whole[low : ((g.stop - 1) >> self.shift) + 1]
        else:
            low, whole = 0, self.whole & self._touched(g)
        if np.count_nonzero(whole):
            self._divide(low + np.flatnonzero(whole))
        return self.granules

    def around(self, g: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The blocks that granules by index lie in; None where most of these are others."""
        blocks = np.flatnonzero(self._touched(g))
        return blocks if 0 < len(blocks) * self.blocks.size <= SPREAD * g.size else None

    def _touched(self, g: NDArray[np.int64]) -> NDArray[np.bool_]:
        touched = np.zeros(len(self.whole), bool)
        touched[g >> self.shift] = True
        return touched

    def every(self) -> Level:
        """All granules with a state of their own."""
        self._divide(np.flatnonzero(self.whole))
        return self.granules

    def _divide(self, blocks: NDArray[np.int64]) -> None:
        if not len(blocks):
            return
        one, many = self.blocks, self.granules
        for name in ("writer", "written", "known"):
            by_block = getattr(many, name).reshape(-1, one.size)
            by_block[blocks] = getattr(one, name)[blocks][:, None]
        rows = self.rows[:, None]
        reads = many.read.reshape(len(many.read), -1, one.size)
        reads[rows, blocks] = one.read[rows, blocks][:, :, None]
        self.whole[blocks] = False

    def gather(self, g: Any) -> None:
        """Granules ``g`` have the same last write: keep them by blocks if their reads are alike."""
        blocks = self._blocks(g) if isinstance(g, slice) else None
        if blocks is None:
            return
        one, many, rows = self.blocks, self.granules, self.rows
        reads = many.read[rows, g].reshape(len(rows), blocks.stop - blocks.start, one.size)
        first = reads[:, :, 0]
        if np.count_nonzero(reads != first[:, :, None]):
            return
        for name in ("writer", "written", "known"):
            getattr(one, name)[blocks] = getattr(many, name)[g.start]
        one.read[rows, blocks] = first
        self.whole[blocks] = True

    def last_write(self, granule: int) -> tuple[int, int]:
        """Chain and stamp of the last write of a granule."""
        level, q = self._of(granule)
        return int(level.writer[q]), int(level.written[q])

    def last_read(self, chain: int, granule: int) -> int:
        """Stamp of a chain's last read of a granule."""
        level, q = self._of(granule)
        return int(level.read[chain, q])

    def _of(self, granule: int) -> tuple[Level, int]:
        block = int(granule) >> self.shift
        return (self.blocks, block) if self.whole[block] else (self.granules, int(granule))


def ranges(pieces: NDArray[np.int64], each: int) -> list[Any]:
    """Granules of sorted pieces of ``each``, as slices, which are faster, where these are few."""
    cuts = np.flatnonzero(np.diff(pieces) != 1) + 1
    if len(cuts) >= MOST_RANGES:
        return [(pieces[:, None] * each + np.arange(each)).ravel()]
    parts = np.split(pieces, cuts)
    return [slice(int(p[0]) * each, (int(p[-1]) + 1) * each) for p in parts]
