"""Merge of many parts of a sequence by bulk copies, in few instructions.

Where three workers and more have parts of a sequence, each of them but the last merges a range of
columns. Its parts come by bulk copies to where queries and keys were, all under way at once, and
both warpgroups merge them in one and the same loop. Code that runs once costs what it takes to
fetch it, so there is little of it.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.epilogue import Epilogue
from mla_var3.kernel.cute_python.kit.handovers import Handover, sync
from mla_var3.kernel.cute_python.kit.joined import (
    COLUMN_GROUPS,
    NUMBERS,
    JoinedKernel,
    signal_of,
)
from mla_var3.kernel.cute_python.kit.slabs import HALF, ROWS, SLAB, SLABS
from mla_var3.kernel.cute_python.kit.softmax import LOWEST
from mla_var3.kernel.cute_python.kit.stores import complete_sums, inverse_sum

#: fp32 values of a warpgroup's room in shared memory, where queries and both tiles of keys were.
ROOM = 3 * SLABS * SLAB * SLAB // 4
#: Values of eight columns of a part: of a warpgroup, and of a warp.
GROUP, WARP = 512, 128
#: Warps of a warpgroup.
WARPS = 4


class StagedEpilogue(Epilogue):
    """Shared memory beside the slabs: the barrier of the copies."""

    def fields(self):
        """Further fields of shared memory, before the slabs."""
        return {"staged": cute.struct.MemRange[cutlass.Int64, 1]}

    @cute.jit
    def init(self, storage):
        """The barrier; from one thread."""
        cute.arch.mbarrier_init(storage.staged.data_ptr(), 1)


class StagedKernel(JoinedKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    #: Room in units of fp32 that eight columns of a part take: of a warpgroup, and of a warp.
    group, warp = GROUP, WARP

    def __init__(self, lazy, share, box, keep=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            share: CTAs of a cluster, which hold neighboring row tiles and share their keys.
            box: Keys that one load takes.
            keep: Whether L2 keeps keys as long as anything else.
        """
        super().__init__(lazy, share, box, keep)
        self.epilogue = StagedEpilogue(1)

    # ---- device half -----------------------------------------------------------------------
    @cute.jit
    def consumed(self, storage, work, outputs, slots):
        """Merge what many share, by both warpgroups."""
        # Of a sequence that goes on, who began it counts as the first of its members.
        members = work.final - work.owner
        if (work.last_tile > 0) & (members > 1):
            self.stage(storage, work, outputs, slots, members)

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
            for r in range_constexpr(2):
                wg.shrink[r] = inverse_sum(wg, r)
            for i in range_constexpr(cute.size(wg.out)):
                wg.out[i] = wg.out[i] * wg.shrink[i // 2 % 2]
            first = Int32(0) if (stop - start) % 2 == 1 else Int32(SLABS)
            self.send(wg, storage, outputs, work, sequence, first, side)
        else:
            kind = Int32(0) if goes_on else Int32(self.share)
            self.leave(wg, work, slots, work.slot + kind, side)

    # ---- merges of three parts and more ----------------------------------------------------
    def parts(self, work, members):
        """Parts of a sequence that so many workers merge."""
        return members + 1

    @cute.jit
    def stage(self, storage, work, outputs, slots, members):
        """Merge this member's range of columns; from both warpgroups."""
        groups = self.most_groups(members)
        first = (work.worker - work.owner) * groups
        if (first < COLUMN_GROUPS) & (self.living(work) > 0):
            groups = cutlass.min(groups, COLUMN_GROUPS - first)
            self.merge_range(storage, work, outputs, slots, first, groups, members)

    @cute.jit
    def merge_range(self, storage, work, outputs, slots, first, groups, members):
        """Parts of a range of groups of columns, as many at once as there is room for."""
        places, signals, _ = slots
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        side, lives = warp // WARPS, self.living(work)
        readers = cute.ceil_div(COLUMN_GROUPS, self.most_groups(members))
        if warp % WARPS < lives:
            self.await_parts(work, signals, side)
        room = storage.q.data_ptr()
        mine = cute.recast_ptr(room, dtype=Float32) + side * ROOM
        most = self.most_parts(groups)
        top, total = cute.make_rmem_tensor(1, Float32), cute.make_rmem_tensor(1, Float32)
        top.fill(LOWEST)
        total.fill(0.0)
        barrier, parts = storage.staged.data_ptr(), self.parts(work, members)
        done, round_ = Int32(0), Int32(0)
        while done < parts:
            # What earlier parts gave lies where the first of them was.
            kept = Int32(0) if done == 0 else Int32(1)
            count = cutlass.min(most - kept, parts - done)
            if cute.arch.thread_idx()[0] == 0:
                size = count * 2 * lives * (NUMBERS // WARPS + groups * self.warp)
                cute.arch.mbarrier_arrive_and_expect_tx(barrier, size * 4)
            cute.arch.fence_proxy("async.shared", space="cta")
            sync(Handover.FIRST_PIECE)
            cute.arch.fence_proxy("async.global")
            self.copy_parts(
                work, places, mine, barrier, (first, groups), (done, kept, count, most), side, lives
            )
            if (done == 0) & (warp % WARPS < lives):
                self.clear_signals(work, signals, side, readers)
            cute.arch.mbarrier_wait(barrier, round_ & 1)
            last = done + count == parts
            if cute.arch.thread_idx()[0] % 128 < lives * (ROWS // WARPS):
                counted = kept, count, most
                self.weigh_parts(storage, mine, counted, top, total, side)
                if last & (first == 0) & (side == 0):
                    row = cute.arch.thread_idx()[0]
                    self.store_sum(work, outputs, row, top[0], total[0])
            sync(Handover.FIRST_PIECE)
            if warp % WARPS < lives:
                self.add_parts(
                    storage, work, slots[2], mine, (first, groups), (kept, count, most), last, side
                )
            done, round_ = done + count, round_ + 1

    def most_parts(self, groups):
        """Parts of so many groups of columns that there is room for."""
        return ROOM // (NUMBERS + groups * self.group)

    def most_groups(self, members):
        """Groups of columns that a member merges, the last one perhaps fewer."""
        return cute.ceil_div(COLUMN_GROUPS, members)

    def living(self, work):
        """Warps of a warpgroup that have a row of the sequence's."""
        rows = cutlass.max(work.heads * work.queries - work.block * ROWS, 0)
        return cutlass.min(cute.ceil_div(rows, ROWS // WARPS), WARPS)

    @cute.jit
    def await_parts(self, work, signals, side):
        """Wait until the same warp of all others has left its part."""
        for worker in cutlass.range(
            work.owner + cute.arch.lane_idx(), work.final + 1, 32, unroll=1
        ):
            signal = signal_of(signals, self.schedule.place(work, worker), side)
            while cute.arch.load(signal, Int32, sem="acquire", scope="gpu") == 0:
                pass
        cute.arch.sync_warp()  # all lanes have seen theirs

    @cute.jit
    def clear_signals(self, work, signals, side, readers):
        """The last who has seen a signal clears it."""
        for worker in cutlass.range(
            work.owner + cute.arch.lane_idx(), work.final + 1, 32, unroll=1
        ):
            signal = signal_of(signals, self.schedule.place(work, worker), side)
            before = cute.arch.atomic_add(signal, Int32(1), sem="relaxed", scope="gpu")
            if before == readers:
                cute.arch.store(signal, Int32(0), sem="relaxed", scope="gpu")

    @cute.jit
    def copy_parts(self, work, places, room, barrier, columns, round_, side, lives):
        """Parts to shared memory, by all threads of a warpgroup: numbers first, then values."""
        first, groups = columns
        done, kept, count, most = round_
        thread = cute.arch.thread_idx()[0] % 128
        values = room + most * NUMBERS
        if lives == WARPS:
            for i in cutlass.range(thread, count, 128, unroll=1):
                place = places[self.place_of(work, done + i, side), None]
                copy(place, 0, room + (kept + i) * NUMBERS, NUMBERS, barrier)
            for n in cutlass.range(thread, count * groups, 128, unroll=1):
                i, j = n // groups, n % groups
                place = places[self.place_of(work, done + i, side), None]
                into = values + ((kept + i) * groups + j) * self.group
                copy(place, NUMBERS + (first + j) * self.group, into, self.group, barrier)
        else:  # warps without rows have left nothing
            for n in cutlass.range(thread, count * lives, 128, unroll=1):
                i, start = n // lives, n % lives * (NUMBERS // WARPS)
                place = places[self.place_of(work, done + i, side), None]
                into = room + (kept + i) * NUMBERS + start
                copy(place, start, into, NUMBERS // WARPS, barrier)
            for n in cutlass.range(thread, count * groups * lives, 128, unroll=1):
                i, j, warp = n // lives // groups, n // lives % groups, n % lives
                place = places[self.place_of(work, done + i, side), None]
                into = values + ((kept + i) * groups + j) * self.group + warp * self.warp
                start = NUMBERS + (first + j) * self.group + warp * self.warp
                copy(place, start, into, self.warp, barrier)

    def place_of(self, work, part, side):
        """Where one side of a part of the sequence lies."""
        return 2 * self.schedule.place(work, work.owner + part) + side

    @cute.jit
    def weigh_parts(self, storage, room, round_, top, total, side):
        """What each part of a row is worth, in place of its maximum; from one thread per row.

        Beside it, what earlier parts are still worth, and the inverse of the sum so far.
        """
        kept, count, most = round_
        row = cute.arch.thread_idx()[0] % 128
        numbers = self.numbers(room, most)
        shrink, inverse = (
            x.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1)))
            for x in (storage.maxima, storage.sums)
        )
        new = top[0]
        for i in cutlass.range(kept, kept + count, unroll=4):
            new = cute.arch.fmax(new, numbers[0, row, i])
        factor = cute.math.exp2(top[0] - new, fastmath=True)
        summed = total[0] * factor
        for i in cutlass.range(kept, kept + count, unroll=4):
            weight = cute.math.exp2(numbers[0, row, i] - new, fastmath=True)
            summed = summed + numbers[1, row, i] * weight
            numbers[0, row, i] = weight
        top[0], total[0] = new, summed
        shrink[side, row] = factor
        inverse[side, row] = Float32(0.0) if summed == 0.0 else Float32(1.0) / summed

    def numbers(self, room, most):
        """Maxima and sums of the rows of parts: [2, 64, parts]."""
        return cute.make_tensor(room, cute.make_layout((2, ROWS, most), stride=(1, 2, NUMBERS)))

    @cute.jit
    def add_parts(self, storage, work, o, room, columns, round_, last, side):
        """Add the parts in shared memory by their weights; store what they give, or keep it."""
        first, groups = columns
        kept, count, most = round_
        thread = cute.arch.thread_idx()[0] % 128
        row = thread // 32 * 16 + thread % 32 // 4
        numbers = self.numbers(room, most)
        values = cute.make_tensor(
            room + most * NUMBERS + 4 * thread,
            cute.make_layout((4, groups, most), stride=(1, GROUP, groups * GROUP)),
        )
        shrink, inverse = (
            x.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1)))
            for x in (storage.maxima, storage.sums)
        )
        outs = [self.out_row(work, o, row + 8 * r) for r in range(2)]
        here = [work.block * ROWS + row + 8 * r < work.heads * work.queries for r in range(2)]
        acc, quad = cute.make_rmem_tensor(4, Float32), cute.make_rmem_tensor(4, Float32)
        for j in cutlass.range(groups, unroll=1):
            acc.fill(0.0)
            if kept == 1:
                cute.autovec_copy(values[None, j, 0], acc)
                for e in range_constexpr(4):
                    acc[e] = acc[e] * shrink[side, row + 8 * (e // 2)]
            for i in cutlass.range(kept, kept + count, unroll=4):
                cute.autovec_copy(values[None, j, i], quad)
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
                cute.autovec_copy(acc, values[None, j, 0])

    def out_row(self, work, o, row):
        """A row of the output; past the last, the first."""
        row = work.block * ROWS + row
        row = cutlass.select_(row < work.heads * work.queries, row, 0)
        return o[work.last, row // work.heads, row % work.heads, None]

    @cute.jit
    def store_sum(self, work, outputs, row, top, total):
        """The LSE of a row."""
        _, _, lse, unit, empty = outputs
        row = work.block * ROWS + row
        if row < work.heads * work.queries:
            value = (top + cute.math.log2(total, fastmath=True)) * unit
            value = empty if total == 0.0 else value
            lse[work.last, row % work.heads, row // work.heads, 0] = value


@cute.jit
def copy(place, first, into, size: cutlass.Constexpr, barrier):
    """Copy fp32 values of a place to shared memory, whose ``barrier`` counts their bytes."""
    atom = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), Float32)
    row = cute.make_layout(size)
    source = cute.make_tensor(cute.domain_offset(first, place).iterator, row)
    cute.copy(atom, source, cute.make_tensor(into, row), mbar_ptr=barrier)
