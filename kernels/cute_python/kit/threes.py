"""Sequences in two or three parts are added up by the worker that begins them.

It keeps its own part in registers, and adds one after another what the others have left. So of
three parts two pass through L2, not three, and nobody but this worker waits. Four parts and more
are merged by all workers that end with them.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.joined import (
    COLUMN_GROUPS,
    numbers_of,
    quads_of,
    signal_of,
)
from mla_var3.kernel.cute_python.kit.l2 import SIGNALS
from mla_var3.kernel.cute_python.kit.prompt import PromptKernel
from mla_var3.kernel.cute_python.kit.short import ShortKernel
from mla_var3.kernel.cute_python.kit.slabs import SLABS
from mla_var3.kernel.cute_python.kit.stores import complete_sums, inverse_sum


class ThreesKernel(PromptKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    #: Parts of others that the worker which begins a sequence adds to its own.
    most = 2

    # ---- results ---------------------------------------------------------------------------
    @cute.jit
    def finish(self, wg, storage, work, outputs, slots, sequence, part, side: cutlass.Constexpr):
        """The output of a whole sequence, or a part of one for those that merge it."""
        start, stop, _ = part
        complete_sums(wg, side)
        goes_on = (sequence == work.last) & (work.last_tile > 0)
        others = work.final - work.owner
        if (start == 0) & ((goes_on == 0) | (others <= self.most)):
            if goes_on:
                for i in cutlass.range(others, unroll=1):  # the last worker has left its part first
                    self.take(wg, work, slots, self.schedule.place(work, work.final - i), side)
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
        """Add the part in a slot to that in registers."""
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
                wg.shrink[r] = cute.math.exp2(wg.row_max[r] - new, fastmath=True)
                theirs[r] = cute.math.exp2(other - new, fastmath=True)
                sums = wg.row_sum[r] * wg.shrink[r] + numbers[wg.row + 8 * r, 1] * theirs[r]
                wg.row_sum[r], wg.row_max[r] = sums, new
            quad = cute.make_rmem_tensor(4, Float32)
            for j in range_constexpr(COLUMN_GROUPS):
                cute.autovec_copy(quads[None, j], quad)
                for i in range_constexpr(4):
                    mine = wg.out[4 * j + i] * wg.shrink[i // 2]
                    wg.out[4 * j + i] = mine + quad[i] * theirs[i // 2]

    @cute.jit
    def leave(self, wg, work, slots, slot, side: cutlass.Constexpr):
        """Write a part to a slot, and say so; of four parts and more by the sequence's counter."""
        places, signals, o = slots
        ends = slot >= work.slot + self.share  # this part ends the sequence
        owner = cutlass.select_(ends, work.begun, work.owner)
        many = cutlass.select_(ends, work.worker, work.final) - owner > self.most
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx()) % SIGNALS
        # Moved so that the signal of this warp in this slot is the counter.
        row = 2 * (self.schedule.began(work, owner) - slot) - side
        moved = (cutlass.select_(many, row, 0), cutlass.select_(many, -warp, 0))
        signals = cute.domain_offset(moved, signals)
        ShortKernel.leave(self, wg, work, (places, signals, o), slot, side)

    # ---- merges of four parts and more -----------------------------------------------------
    @cute.jit
    def consumed(self, storage, work, outputs, slots):
        """Merge some units of the sequence that this worker ends with, with all who do."""
        stays = (work.last_tile > 0) | ((work.worker == work.final) & (work.ends > 0))
        if stays & (work.final - work.owner > self.most):
            members, units = work.final - work.owner + work.ends, self.units * self.living(work)
            each = cute.ceil_div(units, members)
            first = (work.worker - work.owner) * each
            if first < units:
                self.await_all(work, slots[1], cute.ceil_div(units, each))
                count = cutlass.min(each, units - first)
                self.merge_units(storage, work, outputs, slots, first, count)
