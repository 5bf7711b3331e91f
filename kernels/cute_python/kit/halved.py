"""Parts of sequences in two bytes a value, merged by all who end with the same sequence.

What a worker leaves of a row is fp16, scaled by a power of two so that its largest value is near
one; the maximum and the sum that lie beside it are those of the scaled values. So half the bytes
pass through L2, whatever the range of the cache.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.joined import (
    COLUMN_GROUPS,
    NUMBERS,
    numbers_of,
    signal_of,
)
from mla_var3.kernel.cute_python.kit.members import MembersKernel
from mla_var3.kernel.cute_python.kit.slabs import HALF, ROWS
from mla_var3.kernel.cute_python.kit.staged import GROUP, ROOM

#: Room in fp32 that half a part takes: numbers, and values of two bytes.
HALVED_PLACE = NUMBERS + ROWS * HALF // 2
#: Exponents of fp32, and the least and the greatest power of two that scales are kept between.
BIAS, FEWEST, MOST = 127, -100, 126
MANTISSA = 23


def halves_of(places, slot, side):
    """The thread's own values that one side left in a slot: [4, 32]; a warp moves 256 bytes."""
    place = cute.domain_offset(NUMBERS, places[2 * slot + side, None])
    values = cute.recast_ptr(place.iterator, dtype=Float16) + 4 * (cute.arch.thread_idx()[0] % 128)
    return cute.make_tensor(values, cute.make_layout((4, COLUMN_GROUPS), stride=(1, 512)))


@cute.jit
def exponent(value):
    """The power of two above a value, within what fp32 can be scaled by; 0 of nothing."""
    one = cute.make_rmem_tensor(1, Float32)
    one[0] = value
    raised = (cute.recast_tensor(one, Int32)[0] >> MANTISSA) - (BIAS - 1)
    kept = cutlass.min(cutlass.max(raised, FEWEST), MOST)
    return Int32(0) if value == 0.0 else kept


@cute.jit
def power(exponent):
    """Two to a power."""
    one = cute.make_rmem_tensor(1, Int32)
    one[0] = (exponent + BIAS) << MANTISSA
    return cute.recast_tensor(one, Float32)[0]


class HalvedKernel(MembersKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    group, warp = MembersKernel.group // 2, MembersKernel.warp // 2

    # ---- results ---------------------------------------------------------------------------
    @cute.jit
    def leave(self, wg, work, slots, slot, side: cutlass.Constexpr):
        """Write a part to a slot, and say so."""
        places, signals, _ = slots
        if self.lives(wg, work):
            numbers, halves = numbers_of(places, slot, side), halves_of(places, slot, side)
            self.scale(wg)
            quad, short = cute.make_rmem_tensor(4, Float32), cute.make_rmem_tensor(4, Float16)
            for j in range_constexpr(COLUMN_GROUPS):
                for i in range_constexpr(4):
                    quad[i] = wg.out[4 * j + i] * wg.shrink[i // 2]
                short.store(quad.load().to(Float16))
                cute.autovec_copy(short, halves[None, j])
            if wg.lane % 4 == 0:
                for r in range_constexpr(2):
                    pair = cute.make_rmem_tensor(2, Float32)
                    pair[0], pair[1] = wg.row_max[r], wg.row_sum[r]
                    cute.autovec_copy(pair, numbers[wg.row + 8 * r, None])
            cute.arch.sync_warp()  # all that the warp has written is before its release
            with cute.arch.elect_one():
                cute.arch.red(
                    signal_of(signals, slot, side),
                    Int32(1), op="add", dtype=Int32, sem="release", scope="gpu",
                )  # fmt: skip

    @cute.jit
    def scale(self, wg):
        """Factors that bring the rows near one, and maxima and sums to match."""
        top = cute.make_rmem_tensor_like(wg.row_max)
        top.fill(0.0)
        for i in range_constexpr(cute.size(wg.out)):
            top[i // 2 % 2] = cute.arch.fmax(top[i // 2 % 2], cute.math.absf(wg.out[i]))
        for r in range_constexpr(2):
            most = cute.arch.fmax(top[r], cute.arch.shuffle_sync_bfly(top[r], 1))
            raised = exponent(cute.arch.fmax(most, cute.arch.shuffle_sync_bfly(most, 2)))
            wg.shrink[r] = power(-raised)
            wg.row_max[r] = wg.row_max[r] + Float32(raised)
            wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r]

    @cute.jit
    def take(self, wg, work, slots, slot, side: cutlass.Constexpr):
        """Add the part in a slot to that in registers."""
        places, signals, _ = slots
        if self.lives(wg, work):
            signal = signal_of(signals, slot, side)
            while cute.arch.load(signal, Int32, sem="acquire", scope="gpu") == 0:
                pass
            cute.arch.sync_warp()  # all lanes have seen it
            if wg.lane == 0:
                cute.arch.store(signal, Int32(0), sem="relaxed", scope="gpu")
            theirs = self.weigh_two(wg, numbers_of(places, slot, side))
            halves = halves_of(places, slot, side)
            quad, short = cute.make_rmem_tensor(4, Float32), cute.make_rmem_tensor(4, Float16)
            for j in range_constexpr(COLUMN_GROUPS):
                cute.autovec_copy(halves[None, j], short)
                quad.store(short.load().to(Float32))
                for i in range_constexpr(4):
                    mine = wg.out[4 * j + i] * wg.shrink[i // 2]
                    wg.out[4 * j + i] = mine + quad[i] * theirs[i // 2]

    @cute.jit
    def weigh_two(self, wg, numbers):
        """What the own values and those of another part are worth; the sums of both."""
        theirs = cute.make_rmem_tensor_like(wg.row_max)
        for r in range_constexpr(2):
            other = numbers[wg.row + 8 * r, 0]
            new = cute.arch.fmax(wg.row_max[r], other)
            wg.shrink[r] = cute.math.exp2(wg.row_max[r] - new, fastmath=True)
            theirs[r] = cute.math.exp2(other - new, fastmath=True)
            sums = wg.row_sum[r] * wg.shrink[r] + numbers[wg.row + 8 * r, 1] * theirs[r]
            wg.row_sum[r], wg.row_max[r] = sums, new
        return theirs

    # ---- merges of three parts and more ----------------------------------------------------
    def most_parts(self, groups):
        """Parts that there is room for beside what earlier ones gave, which stays in fp32."""
        return (ROOM - groups * GROUP) // (NUMBERS + groups * self.group)

    @cute.jit
    def add_parts(self, storage, work, o, room, columns, round_, last, side):
        """Add the parts in shared memory by their weights; store what they give, or keep it."""
        first, groups = columns
        kept, count, most = round_
        thread = cute.arch.thread_idx()[0] % 128
        row = thread // 32 * 16 + thread % 32 // 4
        numbers = self.numbers(room, most)
        halves = cute.recast_ptr(room + most * NUMBERS, dtype=Float16)
        values = cute.make_tensor(
            halves + 4 * thread,
            cute.make_layout((4, groups, most), stride=(1, GROUP, groups * GROUP)),
        )
        earlier = cute.make_tensor(
            room + (ROOM - groups * GROUP) + 4 * thread,
            cute.make_layout((4, groups), stride=(1, GROUP)),
        )
        shrink, inverse = (
            x.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1)))
            for x in (storage.maxima, storage.sums)
        )
        outs = [self.out_row(work, o, row + 8 * r) for r in range(2)]
        here = [work.block * ROWS + row + 8 * r < work.heads * work.queries for r in range(2)]
        acc, quad = cute.make_rmem_tensor(4, Float32), cute.make_rmem_tensor(4, Float32)
        short = cute.make_rmem_tensor(4, Float16)
        for j in cutlass.range(groups, unroll=1):
            acc.fill(0.0)
            if kept == 1:
                cute.autovec_copy(earlier[None, j], acc)
                for e in range_constexpr(4):
                    acc[e] = acc[e] * shrink[side, row + 8 * (e // 2)]
            for i in cutlass.range(kept, kept + count, unroll=4):
                cute.autovec_copy(values[None, j, i], short)
                quad.store(short.load().to(Float32))
                for e in range_constexpr(4):
                    acc[e] = acc[e] + quad[e] * numbers[0, row + 8 * (e // 2), i]
            if last:
                at = side * (HALF // 2) + 4 * (first + j) + thread % 4
                for r in range_constexpr(2):
                    pair = cute.make_rmem_tensor(2, self.out_dtype)
                    for e in range_constexpr(2):
                        pair[e] = (acc[2 * r + e] * inverse[side, row + 8 * r]).to(self.out_dtype)
                    if here[r]:
                        cute.autovec_copy(pair, cute.local_tile(outs[r], (2,), (at,)))
            else:
                cute.autovec_copy(acc, earlier[None, j])
