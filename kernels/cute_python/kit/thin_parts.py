"""Results of few-row attention over pages: outputs, and parts of sequences merged in one launch.

The two warpgroups of a CTA merge first. What is whole then leaves from registers; a part goes to
L2, and all workers that end with its sequence merge a range of its values each. All parts of a
range come by bulk copies to where keys were, under way at once, whatever their number.

One counter per sequence says that parts have come and who has seen it; it is zero between launches.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.even import Cut
from mla_var3.kernel.cute_python.kit.members import MembersSchedule, MembersWork
from mla_var3.kernel.cute_python.kit.slabs import SLAB
from mla_var3.kernel.cute_python.kit.softmax import LOWEST
from mla_var3.kernel.cute_python.kit.staged import copy
from mla_var3.kernel.cute_python.kit.thin_slabs import (
    BLOCKS,
    BOTH,
    CONSUMERS,
    GROUPS,
    OWN,
    thin_layout,
    thin_parts,
)
from mla_var3.kernel.cute_python.kit.thin_steps import ThinSteps

#: Blocks of the output that a warpgroup keeps of what both have.
HALF_BLOCKS = BLOCKS // GROUPS
#: Columns that the warpgroups exchange at once, as much as there is room for.
ROUND = 16
#: fp32 values before those of a part, of which each column takes one: its LSE to base 2.
NUMBERS = 128
#: Values of a warpgroup's quads, and of a warp's: what a member of a merge takes some of.
GROUP, WARP = 512, 128
#: Consumer warps, and lanes of each.
WARPS, LANES = CONSUMERS // 32, 32
#: What a reader adds to a counter of parts, more than there are of these.
READER = 1 << 16

ThinWork = NamedTuple("ThinWork", [*MembersWork.__annotations__.items(), ("begun", Int32)])


@dataclass(frozen=True)
class ThinSchedule(MembersSchedule):
    """The even schedule, with the worker that began what this one begins in the middle of."""

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA."""
        work = MembersSchedule.work(self, where, lse, masked)
        return ThinWork(*work, begun=where[2][work.worker, int(Cut.OWNER)])


class ThinParts(ThinSteps):
    """What a CTA does with its sums and outputs; see ``ThinPagedKernel`` for what it is made of.

    Both warpgroups run the same code, so that what runs once is fetched once. Block ``b`` of the
    output is slab ``b`` of the left one and slab ``b ^ 4`` of the right one: each keeps its first
    four blocks and hands the others over.
    """

    # ---- the warpgroups of a CTA -----------------------------------------------------------
    @cute.jit
    def finish(self, wg, storage, work, outputs, slots, sequence, part):
        """The output of a whole sequence, or a part of one for those that merge it."""
        start, _, whole = part
        final = (sequence != work.last) | (work.last_tile == 0)
        slot = 2 * work.worker + Int32(final)
        self.over_keys(wg, wg.row_sum, operator.add, 0)
        for first in range_constexpr(0, self.quads, self.exchanged):
            if const_expr(first > 0):
                self.meet(BOTH, CONSUMERS)  # the other has read what was there
            self.hand_over(wg, storage, first)
            self.meet(BOTH, CONSUMERS)
            if const_expr(first == 0):
                self.weigh_both(wg, storage)
                self.keep_sum(wg, storage, work, outputs, slots[0], sequence, slot, whole)
            self.add_other(wg, storage, first)
        if whole:
            self.send(wg, storage, outputs, sequence)
        else:
            self.leave(wg, slots[0], slot)
        self.meet(BOTH, CONSUMERS)  # all that was written is before the release
        if (whole == 0) & (cute.arch.thread_idx()[0] == 0):
            owner = work.worker if start == 0 else work.begun
            cute.arch.red(
                self.counter(slots, owner),
                Int32(1), op="add", dtype=Int32, sem="release", scope="gpu",
            )  # fmt: skip

    def results(self, storage):
        """Maximum and sum of each column, by warpgroup: [groups, 2, columns]."""
        n = self.columns
        return storage.results.get_tensor(cute.make_layout((GROUPS, 2, n), stride=(2 * n, n, 1)))

    def handed(self, wg, storage, group):
        """Four values of this thread by quad and block, as warpgroup ``group`` has left them."""
        size = HALF_BLOCKS * self.exchanged * GROUP
        values = cute.make_tensor(
            storage.handed.data_ptr(), cute.make_layout((4, 128, size // GROUP, GROUPS))
        )
        own = values[None, wg.thread, None, group]
        shape = (4, self.exchanged, HALF_BLOCKS)
        stride = (1, GROUP, GROUP * self.exchanged)
        return cute.make_tensor(own.iterator, cute.make_layout(shape, stride=stride))

    @cute.jit
    def hand_over(self, wg, storage, first: cutlass.Constexpr):
        """Some columns of the half that the other warpgroup keeps, and first of all the sums."""
        place = self.handed(wg, storage, wg.group)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.exchanged):
                given = self.quad(wg, HALF_BLOCKS + block, first + j)
                cute.autovec_copy(given, place[None, j, block])
        if const_expr(first == 0):
            results = self.results(storage)
            if (wg.warp == 0) & (wg.lane < 4):
                for c in range_constexpr(self.mine):
                    results[wg.group, 0, self.column(wg, c)] = wg.row_max[c]
                    results[wg.group, 1, self.column(wg, c)] = wg.row_sum[c]

    @cute.jit
    def both(self, results, group, column):
        """What the sums of a warpgroup and of the other are worth, the sum of both, its maximum."""
        own, other = results[group, 0, column], results[1 - group, 0, column]
        top = cute.arch.fmax(own, other)
        mine = cute.math.exp2(own - top, fastmath=True)
        theirs = cute.math.exp2(other - top, fastmath=True)
        total = results[group, 1, column] * mine + results[1 - group, 1, column] * theirs
        return mine, theirs, total, top

    @cute.jit
    def weigh_both(self, wg, storage):
        """What both warpgroups are worth, divided by the sums of both."""
        results = self.results(storage)
        for c in range_constexpr(self.mine):
            mine, theirs, total, _ = self.both(results, wg.group, self.column(wg, c))
            inverse = Float32(0.0) if total == 0.0 else cute.arch.rcp_approx(total)
            wg.shrink[c], wg.row_sum[c] = mine * inverse, theirs * inverse

    @cute.jit
    def keep_sum(self, wg, storage, work, outputs, places, sequence, slot, whole):
        """The LSE of each column, by a thread each: as it is, or to base 2 with a part."""
        column = cute.arch.thread_idx()[0]
        if column < self.columns:
            _, _, total, top = self.both(self.results(storage), 0, column)
            value = top + cute.math.log2(total, fastmath=True)
            if whole == 0:
                places[2 * slot, column] = value
            elif column < work.heads * work.queries:
                self.store_lse(work, outputs, sequence, column, value)

    @cute.jit
    def add_other(self, wg, storage, first: cutlass.Constexpr):
        """Add what the other has handed over of the kept half."""
        place = self.handed(wg, storage, 1 - wg.group)
        other = cute.make_rmem_tensor(4, Float32)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.exchanged):
                cute.autovec_copy(place[None, j, block], other)
                own = self.quad(wg, block, first + j)
                for i in range_constexpr(4):
                    c = 2 * (first + j) + i % 2
                    own[i] = own[i] * wg.shrink[c] + other[i] * wg.row_sum[c]

    # ---- outputs ---------------------------------------------------------------------------
    def out_slabs(self, storage):
        """Where outputs leave from, in place of what was handed over: [columns, 64, slabs]."""
        layout = thin_layout(self.dtype, self.columns, 2 * self.area)
        start = cute.recast_ptr(storage.handed.data_ptr(), layout.inner, self.dtype)
        return cute.make_tensor(start, layout.outer)

    @property
    def area(self) -> int:
        """Slabs that fit what a warpgroup hands over at once."""
        return HALF_BLOCKS * self.exchanged * GROUP * 4 // (self.columns * SLAB * 2)

    @cute.jit
    def send(self, wg, storage, outputs, sequence):
        """The kept half of the output, by way of the place that this warpgroup has read."""
        store_o, o = outputs[:2]
        slabs, first = self.out_slabs(storage), (1 - wg.group) * self.area
        self.meet(OWN, 128)  # all of it has been read
        for block in range_constexpr(HALF_BLOCKS):
            rounded = cute.make_rmem_tensor(wg.score.layout, self.dtype)
            rounded.store(wg.out[block].load().to(self.dtype))
            slab = slabs[None, None, first + block]
            turned = cute.make_tensor(slab.iterator, cute.select(slab.layout, mode=[1, 0]))
            target = wg.store_thread.partition_D(turned)
            cute.copy(wg.store, wg.store_thread.retile(rounded), target)
        cute.arch.fence_proxy("async.shared", space="cta")
        self.meet(OWN, 128)
        if wg.warp == 0:
            shared, out = thin_parts(store_o, slabs, o, self.columns)
            for block in range_constexpr(HALF_BLOCKS):
                to = out[None, 0, HALF_BLOCKS * wg.group + block, sequence]
                cute.copy(store_o, shared[None, first + block], to)
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)

    def out_row(self, work, o, sequence, row):
        """A row of the output; past the last, the first."""
        row = cutlass.select_(row < work.heads * work.queries, row, 0)
        return o[sequence, row // work.heads, row % work.heads, None]

    @cute.jit
    def store_lse(self, work, outputs, sequence, row, value):
        """An LSE to base 2 in the unit that is asked for; minus infinity is that of no key."""
        lse, unit, empty = outputs[2:]
        value = empty if value == -Float32.inf else value * unit
        lse[sequence, row % work.heads, row // work.heads, 0] = value

    @cute.jit
    def meet(self, barrier: cutlass.Constexpr, threads: cutlass.Constexpr):
        """Of ``OWN`` each warpgroup has one, which the code of both does not tell apart."""
        if const_expr(barrier == OWN):
            group = cute.arch.make_warp_uniform(cute.arch.warp_idx()) // 4
            cute.arch.barrier(barrier_id=OWN + group, number_of_threads=threads)
        else:
            cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)

    # ---- parts of a sequence ---------------------------------------------------------------
    def counter(self, slots, owner):
        """Address of the counter of the sequence that a worker began."""
        return cute.domain_offset((4 * owner, 0), slots[1]).iterator

    @cute.jit
    def leave(self, wg, places, slot):
        """Write the kept half to a slot, in quads, which a warp moves whole."""
        values = cute.domain_offset(NUMBERS, places[2 * slot, None])
        first = HALF_BLOCKS * self.quads * 128 * wg.group
        quads = cute.local_tile(values, (4,), (first + wg.thread,))
        units = cute.make_layout((4, HALF_BLOCKS * self.quads), stride=(1, GROUP))
        into = cute.make_tensor(quads.iterator, units)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.quads):
                cute.autovec_copy(self.quad(wg, block, j), into[None, block * self.quads + j])

    @cute.jit
    def merge(self, storage, work, outputs, slots):
        """Merge a range of the sequence that this worker ends with, where others have parts."""
        stays = (work.last_tile > 0) | ((work.worker == work.final) & (work.ends > 0))
        if stays & (work.final > work.owner):
            members = work.final - work.owner + work.ends
            units = cute.ceil_div(self.units, members)
            first = (work.worker - work.owner) * units
            if first < self.units:
                readers = cute.ceil_div(self.units, units)
                units = cutlass.min(units, self.units - first)
                self.gather(storage, work, slots, first, units, readers)
                self.weigh_parts(storage, work, outputs, first)
                self.meet(BOTH, CONSUMERS)
                self.add_parts(storage, work, slots[2], first, units)

    @property
    def units(self) -> int:
        """Values of a warp's quads in an output, of which a member merges a range."""
        return BLOCKS * self.quads * (GROUP // WARP)

    @cute.jit
    def gather(self, storage, work, slots, first, units, readers):
        """Wait for all parts, and copy a range of each to shared memory, all under way at once."""
        thread, parts = cute.arch.thread_idx()[0], work.final - work.owner + 1
        staged = storage.staged.data_ptr()
        if thread == 0:
            counter = self.counter(slots, work.owner)
            while cute.arch.load(counter, Int32, sem="acquire", scope="gpu") % READER < parts:
                pass
            before = cute.arch.atomic_add(counter, Int32(READER), sem="relaxed", scope="gpu")
            if before // READER == readers - 1:
                cute.arch.store(counter, Int32(0), sem="relaxed", scope="gpu")
            size = parts * (units * WARP + self.columns) * 4
            cute.arch.mbarrier_arrive_and_expect_tx(staged, size)
        self.meet(BOTH, CONSUMERS)
        cute.arch.fence_proxy("async.global")
        values, numbers = self.gathered(storage), storage.handed.data_ptr()
        for i in cutlass.range(thread, parts, CONSUMERS, unroll=1):
            copy(self.part(work, slots, i), 0, numbers + i * self.columns, self.columns, staged)
        for i in cutlass.range(thread, parts * units, CONSUMERS, unroll=1):
            start = NUMBERS + (first + i % units) * WARP
            copy(self.part(work, slots, i // units), start, values + i * WARP, WARP, staged)
        cute.arch.mbarrier_wait(staged, 0)

    def part(self, work, slots, i):
        """What the sequence's worker number ``i`` left of it."""
        worker = work.owner + i
        return slots[0][2 * (2 * worker + Int32(worker == work.final)), None]

    def gathered(self, storage):
        """Where the values of parts come to: where keys were."""
        return cute.recast_ptr(storage.kv.data_ptr(), dtype=Float32)

    @cute.jit
    def weigh_parts(self, storage, work, outputs, first):
        """What each part of a column is worth, in place of its LSE; a warp per column."""
        thread, parts = cute.arch.thread_idx()[0], work.final - work.owner + 1
        lane = thread % LANES
        numbers = self.numbers(storage)
        for column in cutlass.range(thread // LANES, self.columns, WARPS, unroll=1):
            top, total = Float32(LOWEST), Float32(0.0)
            for i in cutlass.range(lane, parts, LANES, unroll=1):
                top = cute.arch.fmax(top, numbers[column, i])
            for distance in (1, 2, 4, 8, 16):
                top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, distance))
            for i in cutlass.range(lane, parts, LANES, unroll=1):
                total = total + cute.math.exp2(numbers[column, i] - top, fastmath=True)
            for distance in (1, 2, 4, 8, 16):
                total = total + cute.arch.shuffle_sync_bfly(total, distance)
            inverse = Float32(0.0) if total == 0.0 else cute.arch.rcp_approx(total)
            for i in cutlass.range(lane, parts, LANES, unroll=1):
                weight = cute.math.exp2(numbers[column, i] - top, fastmath=True)
                numbers[column, i] = weight * inverse
            if (first == 0) & (lane == 0) & (column < work.heads * work.queries):
                value = top + cute.math.log2(total, fastmath=True)
                self.store_lse(work, outputs, work.last, column, value)

    def numbers(self, storage):
        """LSEs of parts, later their weights: [columns, parts]."""
        most = HALF_BLOCKS * self.exchanged * GROUP * GROUPS // self.columns
        layout = cute.make_layout((self.columns, most))
        return cute.make_tensor(storage.handed.data_ptr(), layout)

    @cute.jit
    def add_parts(self, storage, work, o, first, units):
        """Add the parts of a range by their weights, and store what they give."""
        thread, parts = cute.arch.thread_idx()[0], work.final - work.owner + 1
        numbers, values = self.numbers(storage), self.gathered(storage)
        lane = thread % LANES
        acc, quad = cute.make_rmem_tensor(4, Float32), cute.make_rmem_tensor(4, Float32)
        for i in cutlass.range(thread // LANES, units, WARPS, unroll=1):
            unit = (first + i) // (GROUP // WARP)
            dimension = unit // self.quads * SLAB + (first + i) % (GROUP // WARP) * 16 + lane // 4
            column = unit % self.quads * 8 + 2 * (lane % 4)
            acc.fill(0.0)
            own = cute.make_tensor(values + i * WARP + 4 * lane, cute.make_layout(4))
            for part in cutlass.range(parts, unroll=4):
                given = cute.make_tensor(own.iterator + part * units * WARP, cute.make_layout(4))
                cute.autovec_copy(given, quad)
                for e in range_constexpr(4):
                    acc[e] = acc[e] + quad[e] * numbers[column + e % 2, part]
            for c in range_constexpr(2):
                if column + c < work.heads * work.queries:
                    out = self.out_row(work, o, work.last, column + c)
                    for r in range_constexpr(2):
                        out[dimension + 8 * r] = acc[c + 2 * r].to(o.element_type)
