"""Results of few-row attention over pages: outputs, and parts of sequences merged in one launch.

The two warpgroups of a CTA merge first. What is whole then leaves from registers, also where one
other worker has a part, which is added to them. Where more have one, each leaves its part in L2,
and all that end with the sequence merge some of its units.

One counter per sequence says how many parts have come, and who has seen them; it is zero between
launches.
"""

from __future__ import annotations

import operator

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.slabs import SLAB
from mla_var3.kernel.cute_python.kit.softmax import LOWEST
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
#: Values of a warpgroup's quads.
GROUP = 512


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
        start, _, _ = part
        goes_on = (sequence == work.last) & (work.last_tile > 0)
        alone = (start == 0) & ((goes_on == 0) | (work.final == work.owner + 1))
        slot = 2 * work.worker + 1 - Int32(goes_on)
        self.over_keys(wg, wg.row_sum, operator.add, 0)
        for first in range_constexpr(0, self.quads, self.exchanged):
            if const_expr(first > 0):
                self.meet(BOTH, CONSUMERS)  # the other has read what was there
            self.hand_over(wg, storage, first)
            self.meet(BOTH, CONSUMERS)
            if const_expr(first == 0):
                self.weigh_both(wg, storage)
            self.add_other(wg, storage, first)
        if alone:
            if goes_on:
                self.take(wg, storage, work, slots)
            self.store_sums(storage, work, outputs, slots, sequence, goes_on)
            self.send(wg, storage, outputs, sequence)
            self.meet(BOTH, CONSUMERS)  # what was handed over may be written again
        else:
            self.leave(wg, storage, slots[0], slot)
            self.meet(BOTH, CONSUMERS)  # all that was written is before the release
            if cute.arch.thread_idx()[0] == 0:
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

    def sum_of(self, storage, column):
        """LSE to base 2 of a column over both warpgroups."""
        _, _, total, top = self.both(self.results(storage), 0, column)
        return top + cute.math.log2(total, fastmath=True)

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

    @cute.jit
    def store_sums(self, storage, work, outputs, slots, sequence, taken):
        """The LSE of each column, by a thread each, with that of a part that was taken."""
        column = cute.arch.thread_idx()[0]
        if column < work.heads * work.queries:
            value = self.sum_of(storage, column)
            if taken:
                _, _, top, total = self.two(value, self.left(work, slots, work.final)[column])
                value = top + cute.math.log2(total, fastmath=True)
            self.store_lse(work, outputs, sequence, column, value)

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

    def left(self, work, slots, worker):
        """What a worker has left of the sequence that this one ends with: LSEs, then quads."""
        return slots[0][2 * (2 * worker + Int32(worker == work.final)), None]

    def quads_of(self, place, first):
        """The thread's quads of a part, from one on: [4, quads]; a warp moves 512 bytes."""
        values = cute.domain_offset(NUMBERS, place)
        quads = cute.local_tile(values, (4,), (first * 128 + cute.arch.thread_idx()[0] % 128,))
        layout = cute.make_layout((4, HALF_BLOCKS * self.quads), stride=(1, GROUP))
        return cute.make_tensor(quads.iterator, layout)

    @cute.jit
    def leave(self, wg, storage, places, slot):
        """Write the kept half to a slot, and the LSE of each column."""
        place = places[2 * slot, None]
        into = self.quads_of(place, HALF_BLOCKS * self.quads * wg.group)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.quads):
                cute.autovec_copy(self.quad(wg, block, j), into[None, block * self.quads + j])
        column = cute.arch.thread_idx()[0]
        if column < self.columns:
            place[column] = self.sum_of(storage, column)

    @cute.jit
    def two(self, own, other):
        """What two parts of a column are worth by their LSEs, the maximum of these, and the sum."""
        # Rows that see no key: any weight of their zeros is right, but none is a NaN.
        top = cute.arch.fmax(cute.arch.fmax(own, other), Float32(LOWEST))
        mine = cute.math.exp2(own - top, fastmath=True)
        theirs = cute.math.exp2(other - top, fastmath=True)
        total = mine + theirs
        inverse = Float32(0.0) if total == 0.0 else cute.arch.rcp_approx(total)
        return mine * inverse, theirs * inverse, top, total

    @cute.jit
    def take(self, wg, storage, work, slots):
        """Add the one other part to the kept half in registers."""
        if cute.arch.thread_idx()[0] == 0:
            counter = self.counter(slots, work.owner)
            while cute.arch.load(counter, Int32, sem="acquire", scope="gpu") == 0:
                pass
            cute.arch.store(counter, Int32(0), sem="relaxed", scope="gpu")
        self.meet(BOTH, CONSUMERS)
        place = self.left(work, slots, work.final)
        for c in range_constexpr(self.mine):
            own = self.sum_of(storage, self.column(wg, c))
            mine, theirs, _, _ = self.two(own, place[self.column(wg, c)])
            wg.shrink[c], wg.row_sum[c] = mine, theirs
        quads = self.quads_of(place, HALF_BLOCKS * self.quads * wg.group)
        other = cute.make_rmem_tensor((4, HALF_BLOCKS * self.quads), Float32)
        for j in range_constexpr(HALF_BLOCKS * self.quads):
            cute.autovec_copy(quads[None, j], other[None, j])
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.quads):
                own = self.quad(wg, block, j)
                for i in range_constexpr(4):
                    c = 2 * j + i % 2
                    given = other[i, block * self.quads + j] * wg.row_sum[c]
                    own[i] = own[i] * wg.shrink[c] + given
