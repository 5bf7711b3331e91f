"""Attention over pages in as little code as runs once: what a part ends with costs its fetching.

The last pair of tiles, and a tile without another, pass through the same loop as all others. Where
two workers share a sequence, what adds the other's part also divides by the sums.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.handovers import Handover, arrive, sync
from mla_var3.kernel.cute_python.kit.joined import (
    COLUMN_GROUPS,
    numbers_of,
    quads_of,
    signal_of,
)
from mla_var3.kernel.cute_python.kit.members import MembersKernel
from mla_var3.kernel.cute_python.kit.pages import LANES, PageLoads
from mla_var3.kernel.cute_python.kit.products import RMEM, SMEM, accumulate, scores
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import KEYS, SLABS
from mla_var3.kernel.cute_python.kit.softmax import (
    adopt_max,
    publish_max,
    rescale,
    rescale_weights,
    store_weights,
)
from mla_var3.kernel.cute_python.kit.stores import complete_sums, inverse_sum
from mla_var3.kernel.cute_python.kit.warpgroups import EVEN_ORDER, Side


class SteadyLoads(PageLoads):
    """Loads that go on from where the last ones were: a sequence begins with a division, no tile.

    Of each box there are its page's number, the page, the row that the load begins at and that of
    its first key; then how many pages and rows the next tile but one lies further on.
    """

    def entries(self):
        """Registers for what is known of each of this CTA's boxes of a tile."""
        return cute.make_rmem_tensor(4 * self.lookups() + 2, Int32)

    def lookups(self):
        """Boxes that a lane looks up."""
        return max(self.pieces // LANES, 1)

    def look_up(self, entries, sequence, length, tile):
        """Find the pages of a sequence's first tile."""
        page, count = self.latent.shape[0], self.lookups()
        for i in range(count):
            key = self.first_key(tile, i)
            entries[4 * i], entries[4 * i + 3] = key // page, key % page
            self.find(entries, sequence, length, key, i)
        entries[4 * count], entries[4 * count + 1] = 2 * KEYS // page, 2 * KEYS % page

    def go_on(self, entries, sequence, length, tile):
        """Find the pages of the next tile but one."""
        page, count = self.latent.shape[0], self.lookups()
        for i in range(count):
            row = entries[4 * i + 3] + entries[4 * count + 1]
            further = Int32(row >= page)
            entries[4 * i] = entries[4 * i] + entries[4 * count] + further
            entries[4 * i + 3] = row - further * page
            self.find(entries, sequence, length, self.first_key(tile, i), i)

    def first_key(self, tile, i):
        """First key of the box that this lane looks up."""
        key = self.key(tile) + i * LANES * self.box
        return key + cute.arch.lane_idx() % self.pieces * self.box if self.pieces > 1 else key

    def find(self, entries, sequence, length, key, i):
        """The page of a box and the row that its load begins at; of none a row past the last."""
        kept = cutlass.max(cutlass.min(length - key, self.box), 0)
        row = entries[4 * i + 3] + kept - self.box
        entries[4 * i + 2] = cutlass.select_(kept == 0, self.latent.shape[0], row)
        # A length beyond the table is the caller's mistake, and must not be read beyond it.
        at = cutlass.min(entries[4 * i], self.table.shape[1] - 1)
        entries[4 * i + 1] = self.table[sequence, at]

    def place(self, entries, page, key, length, piece):
        """Page and row of a box, as they were found."""
        at = 4 * (piece // LANES)
        which, row = entries[at + 1], entries[at + 2]
        if self.pieces > 1:
            which = cute.arch.shuffle_sync(which, piece % LANES)
            row = cute.arch.shuffle_sync(row, piece % LANES)
        return which, row


class ShortKernel(MembersKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    loads = SteadyLoads

    # ---- producer warps --------------------------------------------------------------------
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
        """Load a tile, and find the places of the one after it."""
        self.load_tile(storage, kv_loads, entries, tile, length, phase, group)
        kv_loads.go_on(entries, sequence, length, tile + 2)

    # ---- left warpgroup --------------------------------------------------------------------
    @cute.jit
    def left_tiles(self, wg, even, odd, evens, queries):
        """Weights of the even tiles, columns 0 to 255 of the output."""
        scores(wg, Side.LEFT, EVEN_ORDER, True, evens & 1, queries)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_ROPE)
        for i in cutlass.range(even, unroll=1):
            if i + 1 == even:
                self.release(wg, Free.Q)
            self.left_any(wg, i, (evens + i + 1) & 1, i < odd, i + 1 < even)
        self.release(wg, Free.Q_ROPE)

    @cute.jit
    def left_any(self, wg, i, next_phase, paired, more):
        """An even tile, the odd one after it where there is one, and the scores of the next."""
        self.weigh(wg, 2 * i)
        publish_max(wg, Side.LEFT)
        arrive(Handover.EVEN_MAX)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.LEFT)
        warpgroup.wait_group(0)
        if paired:  # else it is the output's way out
            self.release(wg, Free.EVEN_LEFT)
        sync(Handover.ODD_MAX)
        if paired:
            adopt_max(wg, Side.RIGHT)
            rescale_weights(wg)
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.EVEN_WEIGHTS)
        if paired:
            sync(Handover.ODD_WEIGHTS)
            rescale(wg.out, wg.shrink)
            accumulate(wg, SMEM, wg.peer_weights, Side.RIGHT)
            if more:
                scores(wg, Side.LEFT, EVEN_ORDER[:4], True, next_phase)
                warpgroup.wait_group(4)
                self.release(wg, Free.ODD_LEFT)
                scores(wg, Side.LEFT, EVEN_ORDER[4:], False, next_phase)
            warpgroup.wait_group(0)
            if more:
                self.release(wg, Free.EVEN_ROPE)

    # ---- results ---------------------------------------------------------------------------
    @cute.jit
    def finish(self, wg, storage, work, outputs, slots, sequence, part, side: cutlass.Constexpr):
        """The output of a whole sequence, or a part of one for those that merge it."""
        start, stop, _ = part
        complete_sums(wg, side)
        goes_on = (sequence == work.last) & (work.last_tile > 0)
        alone = (start == 0) & ((goes_on == 0) | (work.final == work.owner + 1))
        if alone:
            if goes_on:
                self.take(wg, work, slots, self.schedule.place(work, work.final), side)
            else:
                for r in range_constexpr(2):
                    wg.shrink[r] = inverse_sum(wg, r)
                for i in range_constexpr(cute.size(wg.out)):
                    wg.out[i] = wg.out[i] * wg.shrink[i // 2 % 2]
            first = Int32(0) if (stop - start) % 2 == 1 else Int32(SLABS)
            self.send(wg, storage, outputs, work, sequence, first, side)
        else:
            kind = Int32(0) if goes_on else Int32(self.share)
            self.leave(wg, work, slots, work.slot + kind, side)

    @cute.jit
    def take(self, wg, work, slots, slot, side: cutlass.Constexpr):
        """Add the part in a slot to that in registers, both divided by the sum of both."""
        places, signals, _ = slots
        if self.lives(wg, work):
            signal = signal_of(signals, slot, side)
            while cute.arch.load(signal, Int32, sem="acquire", scope="gpu") == 0:
                pass
            cute.arch.sync_warp()  # all lanes have seen it
            if wg.lane == 0:
                cute.arch.store(signal, Int32(0), sem="relaxed", scope="gpu")
            numbers, quads = numbers_of(places, slot, side), quads_of(places, slot, side)
            theirs = cute.make_rmem_tensor_like(wg.row_max)
            for r in range_constexpr(2):
                other = numbers[wg.row + 8 * r, 0]
                new = cute.arch.fmax(wg.row_max[r], other)
                mine = cute.math.exp2(wg.row_max[r] - new, fastmath=True)
                weight = cute.math.exp2(other - new, fastmath=True)
                sums = wg.row_sum[r] * mine + numbers[wg.row + 8 * r, 1] * weight
                wg.row_sum[r], wg.row_max[r] = sums, new
                inverse = inverse_sum(wg, r)
                wg.shrink[r], theirs[r] = mine * inverse, weight * inverse
            quad = cute.make_rmem_tensor(4, Float32)
            for j in range_constexpr(COLUMN_GROUPS):
                cute.autovec_copy(quads[None, j], quad)
                for i in range_constexpr(4):
                    mine = wg.out[4 * j + i] * wg.shrink[i // 2]
                    wg.out[4 * j + i] = mine + quad[i] * theirs[i // 2]
