"""Loads of pages whose places are known before their tile is free.

Where a box begins takes a division. It is done before the wait for the tile and not after it, where
ptxas would put it among the loads: so a tile that comes free is on its way at once.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.pages import LANES, PageLoads, first_row
from mla_var3.kernel.cute_python.kit.staged import StagedKernel


class AheadLoads(PageLoads):
    """Loads whose places are found a tile ahead: once a tile is free, nothing is left to divide."""

    def entries(self):
        """Registers for the page of each of this CTA's boxes of a tile, and for its row there."""
        return cute.make_rmem_tensor(2 * max(self.pieces // LANES, 1), Int32)

    def look_up(self, entries, sequence, length, tile):
        """Find the pages of a tile, and the rows that its boxes begin at."""
        page, count = self.latent.shape[0], cute.size(entries) // 2
        for i in range(count):
            key = self.key(tile) + i * LANES * self.box
            if self.pieces > 1:
                key = key + cute.arch.lane_idx() % self.pieces * self.box
            kept = cutlass.max(cutlass.min(length - key, self.box), 0)
            entries[count + i] = first_row(key, kept, page, self.box)
            key = cutlass.max(cutlass.min(key, length - 1), 0)
            at = cutlass.min(key // page, self.table.shape[1] - 1)
            entries[i] = self.table[sequence, at]

    def place(self, entries, page, key, length, piece):
        """Page and row of a box, as ``look_up`` has left them."""
        count = cute.size(entries) // 2
        which, row = entries[piece // LANES], entries[count + piece // LANES]
        if self.pieces > 1:
            which = cute.arch.shuffle_sync(which, piece % LANES)
            row = cute.arch.shuffle_sync(row, piece % LANES)
        return which, row


class AheadKernel(StagedKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    loads = AheadLoads

    @cute.jit
    def load_next(
        self,
        storage,
        kv_loads,
        entries,
        sequence,
        length,
        tile,
        phase,
        group: cutlass.Constexpr,
    ):
        """Find the places of the tile after this one, and load this one when it is free."""
        following = cute.make_rmem_tensor(cute.size(entries), Int32)
        self.look_up(kv_loads, following, sequence, length, tile + 2)
        self.load_tile(storage, kv_loads, entries, tile, length, phase, group)
        for i in range_constexpr(cute.size(entries)):
            entries[i] = following[i]
