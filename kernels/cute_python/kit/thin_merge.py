"""Merge of three parts and more of a sequence of few rows, from L2, by all that end with it.

Each member merges some units: the quads of a warp in two blocks of the output. A warp asks for its
unit in several parts at once. Where a member has fewer units than warps, some warps share a unit
and each adds every so-many-th part.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.slabs import SLAB
from mla_var3.kernel.cute_python.kit.softmax import LOWEST
from mla_var3.kernel.cute_python.kit.thin_parts import GROUP, HALF_BLOCKS, NUMBERS, ThinParts
from mla_var3.kernel.cute_python.kit.thin_slabs import BOTH, CONSUMERS

#: Values of a warp's quads.
WARP = 128
#: Consumer warps, and lanes of each.
WARPS, LANES = CONSUMERS // 32, 32
#: Parts of a unit that a warp asks for at once.
AT_ONCE = 4
#: What a reader adds to a counter of parts, more than there are of these.
READER = 1 << 16


class ThinMerge(ThinParts):
    """What the members of a sequence do at their end."""

    @property
    def units(self) -> int:
        """Warps' quads of an output, two blocks each: what members of a merge share."""
        return HALF_BLOCKS * self.quads * (GROUP // WARP)

    @cute.jit
    def merge(self, storage, work, outputs, slots):
        """Merge some units of the sequence that this worker ends with, if three or more have it."""
        stays = (work.last_tile > 0) | ((work.worker == work.final) & (work.ends > 0))
        if stays & (work.final - work.owner > 1):
            members = work.final - work.owner + work.ends
            each = cute.ceil_div(self.units, members)
            first = (work.worker - work.owner) * each
            if first < self.units:
                self.await_parts(work, slots, cute.ceil_div(self.units, each))
                self.merge_units(
                    storage, work, outputs, slots, first, cutlass.min(each, self.units - first)
                )

    @cute.jit
    def await_parts(self, work, slots, readers):
        """Wait for all parts; the last reader clears the counter."""
        if cute.arch.thread_idx()[0] == 0:
            counter, parts = self.counter(slots, work.owner), work.final - work.owner + 1
            while cute.arch.load(counter, Int32, sem="acquire", scope="gpu") % READER < parts:
                pass
        self.meet(BOTH, CONSUMERS)
        if cute.arch.thread_idx()[0] == CONSUMERS - 1:
            counter = self.counter(slots, work.owner)
            before = cute.arch.atomic_add(counter, Int32(READER), sem="relaxed", scope="gpu")
            if before // READER == readers - 1:
                cute.arch.store(counter, Int32(0), sem="relaxed", scope="gpu")

    @cute.jit
    def merge_units(self, storage, work, outputs, slots, first, units):
        """A unit per warp, or of few units some warps each, which then add what they have."""
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        lane = cute.arch.thread_idx()[0] % LANES
        team = cutlass.max(WARPS // units, 1)
        at_once = WARPS // team
        sums = cute.make_rmem_tensor((2, 2), Float32)  # maximum and sum of two columns
        acc = cute.make_rmem_tensor((4, 2), Float32)
        shared = cute.make_tensor(
            storage.handed.data_ptr(), cute.make_layout((LANES, 12, WARPS))
        )[lane, None, None]  # fmt: skip
        for n in cutlass.range(cute.ceil_div(units, at_once), unroll=1):
            number = warp // team + n * at_once
            unit = first + cutlass.min(number, units - 1)
            self.add_parts(work, slots, unit, warp % team, team, lane, sums, acc)
            if team > 1:
                for i in range_constexpr(4):
                    shared[i, warp] = sums[i]
                for i in range_constexpr(8):
                    shared[4 + i, warp] = acc[i]
                self.meet(BOTH, CONSUMERS)
                if warp % team == 0:
                    for other in cutlass.range(warp + 1, warp + team, unroll=1):
                        self.add_shared(shared[None, other], sums, acc)
            if (warp % team == 0) & (number < units):
                self.store_unit(work, outputs, slots[2], unit, lane, sums, acc)

    def place_of_unit(self, unit):
        """First block, quad of columns, and warp of a unit."""
        warps = GROUP // WARP
        return unit // (self.quads * warps) * 2, unit // warps % self.quads, unit % warps

    @cute.jit
    def add_parts(self, work, slots, unit, first, step, lane, sums, acc):
        """Add every ``step``-th part of a unit; loads of some stand before the first use of one."""
        block, j, warp = self.place_of_unit(unit)
        for c in range_constexpr(2):
            sums[0, c], sums[1, c] = Float32(LOWEST), Float32(0.0)
        acc.fill(0.0)
        pairs = cute.make_rmem_tensor((2, AT_ONCE), Float32)
        quads = cute.make_rmem_tensor((4, 2, AT_ONCE), Float32)
        parts = work.final - work.owner + 1
        for part in cutlass.range(first, parts, step * AT_ONCE, unroll=1):
            for n in range_constexpr(AT_ONCE):
                worker = work.owner + cutlass.min(part + n * step, parts - 1)
                place = self.left(work, slots, worker)
                pair = cute.local_tile(place, (2,), (4 * j + lane % 4,))
                cute.autovec_copy(pair, pairs[None, n])
                values = cute.domain_offset(NUMBERS, place)
                for b in range_constexpr(2):
                    at = ((block + b) * self.quads + j) * 128 + warp * LANES + lane
                    cute.autovec_copy(cute.local_tile(values, (4,), (at,)), quads[None, b, n])
            for c in range_constexpr(2):
                top = sums[0, c]
                for n in range_constexpr(AT_ONCE):
                    there = part + n * step < parts
                    pairs[c, n] = cutlass.select_(there, pairs[c, n], -Float32.inf)
                    top = cute.arch.fmax(top, pairs[c, n])
                kept = cute.math.exp2(sums[0, c] - top, fastmath=True)
                sums[0, c], sums[1, c] = top, sums[1, c] * kept
                for i in range_constexpr(c, 4, 2):
                    for b in range_constexpr(2):
                        acc[i, b] = acc[i, b] * kept
                for n in range_constexpr(AT_ONCE):
                    weight = cute.math.exp2(pairs[c, n] - top, fastmath=True)
                    sums[1, c] = sums[1, c] + weight
                    for i in range_constexpr(c, 4, 2):
                        for b in range_constexpr(2):
                            acc[i, b] = acc[i, b] + quads[i, b, n] * weight

    @cute.jit
    def add_shared(self, other, sums, acc):
        """Add what another warp of the team has of the same unit."""
        for c in range_constexpr(2):
            theirs, mine = other[2 * c], sums[0, c]
            top = cute.arch.fmax(mine, theirs)
            theirs = cute.math.exp2(theirs - top, fastmath=True)
            mine = cute.math.exp2(mine - top, fastmath=True)
            sums[0, c], sums[1, c] = top, sums[1, c] * mine + other[2 * c + 1] * theirs
            for i in range_constexpr(c, 4, 2):
                for b in range_constexpr(2):
                    acc[i, b] = acc[i, b] * mine + other[4 + 4 * b + i] * theirs

    @cute.jit
    def store_unit(self, work, outputs, o, unit, lane, sums, acc):
        """Two dimensions of two columns, of two blocks; of the first unit of columns the LSE."""
        block, j, warp = self.place_of_unit(unit)
        for c in range_constexpr(2):
            column = 8 * j + 2 * (lane % 4) + c
            total = sums[1, c]
            inverse = Float32(0.0) if total == 0.0 else cute.arch.rcp_approx(total)
            if column < work.heads * work.queries:
                row, head = column // work.heads, column % work.heads
                out = o[work.last, row, head, None]
                for b in range_constexpr(2):
                    at = (block + b) * SLAB + 16 * warp + lane // 4
                    for r in range_constexpr(2):
                        out[at + 8 * r] = (acc[c + 2 * r, b] * inverse).to(o.element_type)
                if (block == 0) & (warp == 0) & (lane < 4):
                    value = sums[0, c] + cute.math.log2(total, fastmath=True)
                    self.store_lse(work, outputs, work.last, column, value)
