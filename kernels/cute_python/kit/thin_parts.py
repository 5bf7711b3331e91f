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
from mla_var3.kernel.cute_python.kit.thin_slabs import BLOCKS, BOTH, CONSUMERS, GROUPS
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
    """What a CTA does with its sums and outputs; see ``ThinPagedKernel`` for what it is made of."""

    # ---- the warpgroups of a CTA -----------------------------------------------------------
    @cute.jit
    def finish(self, wg, storage, work, outputs, slots, sequence, part, group: cutlass.Constexpr):
        """The output of a whole sequence, or a part of one for those that merge it."""
        _, _, whole = part
        self.over_keys(wg, wg.row_sum, operator.add, group)
        for first in range_constexpr(0, self.quads, self.exchanged):
            if const_expr(first > 0):
                self.meet(BOTH, CONSUMERS)  # the other has read what was there
            self.hand_over(wg, storage, first, group)
            self.meet(BOTH, CONSUMERS)
            if const_expr(first == 0):
                self.weigh_both(wg, storage, group)
            self.add_other(wg, storage, first, group)
        if whole:
            self.store(wg, work, outputs, slots[2], sequence, group)
            self.meet(BOTH, CONSUMERS)
        else:
            owner = work.begun if sequence == work.first else work.worker
            owner = work.worker if part[0] == 0 else owner
            final = (sequence != work.last) | (work.last_tile == 0)
            self.leave(wg, slots, 2 * work.worker + Int32(final), group)
            self.meet(BOTH, CONSUMERS)  # all that was written is before the release
            if (group == 0) & (wg.thread == 0):
                counter = self.counter(slots, owner)
                cute.arch.red(
                    counter, Int32(1), op="add", dtype=Int32, sem="release", scope="gpu"
                )

    def results(self, storage):
        """Maximum and sum of each column, by warpgroup: [groups, 2, columns]."""
        n = self.columns
        return storage.results.get_tensor(cute.make_layout((GROUPS, 2, n), stride=(2 * n, n, 1)))

    def handed(self, wg, storage, group):
        """Four values of this thread by quad and block, as warpgroup ``group`` has left them."""
        values = storage.handed.data_ptr() + group * HALF_BLOCKS * self.exchanged * GROUP
        shape = (4, self.exchanged, HALF_BLOCKS)
        stride = (1, GROUP, GROUP * self.exchanged)
        return cute.make_tensor(values + wg.thread * 4, cute.make_layout(shape, stride=stride))

    @cute.jit
    def hand_over(self, wg, storage, first: cutlass.Constexpr, group: cutlass.Constexpr):
        """Some columns of the half that the other warpgroup keeps, and first of all the sums."""
        place = self.handed(wg, storage, group)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.exchanged):
                given = self.quad(wg, (1 - group) * HALF_BLOCKS + block, first + j)
                cute.autovec_copy(given, place[None, j, block])
        if const_expr(first == 0):
            results = self.results(storage)
            if (wg.warp == 0) & (wg.lane < 4):
                for c in range_constexpr(self.mine):
                    results[group, 0, self.column(wg, c)] = wg.row_max[c]
                    results[group, 1, self.column(wg, c)] = wg.row_sum[c]

    @cute.jit
    def weigh_both(self, wg, storage, group: cutlass.Constexpr):
        """What both are worth, divided by the sums of both; ``top`` is their LSE to base 2."""
        results = self.results(storage)
        for c in range_constexpr(self.mine):
            peer_max, peer_sum = [results[1 - group, i, self.column(wg, c)] for i in range(2)]
            top = cute.arch.fmax(wg.row_max[c], peer_max)
            mine = cute.math.exp2(wg.row_max[c] - top, fastmath=True)
            theirs = cute.math.exp2(peer_max - top, fastmath=True)
            total = wg.row_sum[c] * mine + peer_sum * theirs
            inverse = Float32(0.0) if total == 0.0 else cute.arch.rcp_approx(total)
            wg.shrink[c], wg.row_sum[c] = mine * inverse, theirs * inverse
            wg.top[c] = top + cute.math.log2(total, fastmath=True)

    @cute.jit
    def add_other(self, wg, storage, first: cutlass.Constexpr, group: cutlass.Constexpr):
        """Add what the other has handed over of the kept half."""
        place = self.handed(wg, storage, 1 - group)
        other = cute.make_rmem_tensor(4, Float32)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.exchanged):
                cute.autovec_copy(place[None, j, block], other)
                own = self.quad(wg, group * HALF_BLOCKS + block, first + j)
                for i in range_constexpr(4):
                    c = 2 * (first + j) + i % 2
                    own[i] = own[i] * wg.shrink[c] + other[i] * wg.row_sum[c]

    # ---- outputs ---------------------------------------------------------------------------
    def out_row(self, work, o, sequence, row):
        """A row of the output; past the last, the first."""
        row = cutlass.select_(row < work.heads * work.queries, row, 0)
        return o[sequence, row // work.heads, row % work.heads, None]

    @cute.jit
    def store(self, wg, work, outputs, o, sequence, group: cutlass.Constexpr):
        """The kept half of the output; the first warpgroup stores the LSE."""
        for c in range_constexpr(self.mine):
            row = self.column(wg, c)
            if row < work.heads * work.queries:
                out = self.out_row(work, o, sequence, row)
                for block in range_constexpr(HALF_BLOCKS):
                    at = (group * HALF_BLOCKS + block) * SLAB + 16 * wg.warp + wg.lane // 4
                    for r in range_constexpr(2):
                        value = self.quad(wg, group * HALF_BLOCKS + block, c // 2)[c % 2 + 2 * r]
                        out[at + 8 * r] = value.to(o.element_type)
                if const_expr(group == 0) and (wg.warp == 0) & (wg.lane < 4):
                    self.store_lse(work, outputs, sequence, row, wg.top[c])

    @cute.jit
    def store_lse(self, work, outputs, sequence, row, value):
        """An LSE to base 2 in the unit that is asked for; minus infinity is that of no key."""
        lse, unit, empty = outputs
        value = empty if value == -Float32.inf else value * unit
        lse[sequence, row % work.heads, row // work.heads, 0] = value

    # ---- parts of a sequence ---------------------------------------------------------------
    def counter(self, slots, owner):
        """Address of the counter of the sequence that a worker began."""
        return cute.domain_offset((4 * owner, 0), slots[1]).iterator

    @cute.jit
    def leave(self, wg, slots, slot, group: cutlass.Constexpr):
        """Write a part to a slot: the LSE of each column, then quads, which a warp moves whole."""
        place = slots[0][2 * slot, None]
        quads = cute.local_tile(cute.domain_offset(NUMBERS, place), (4,), (wg.thread,))
        units = cute.make_layout((4, BLOCKS * self.quads), stride=(1, GROUP))
        into = cute.make_tensor(quads.iterator, units)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.quads):
                at = group * HALF_BLOCKS + block
                cute.autovec_copy(self.quad(wg, at, j), into[None, at * self.quads + j])
        if const_expr(group == 0) and (wg.warp == 0) & (wg.lane < 4):
            for c in range_constexpr(self.mine):
                place[self.column(wg, c)] = wg.top[c]

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
