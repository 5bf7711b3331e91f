"""Parts of sequences that cost less: places go back before a part leaves, merges stay in registers.

What a part leaves in L2 does not pass through shared memory, so the keys of the next sequence are
under way meanwhile. Where three workers and more have parts of a sequence, each that ends with it
merges some units: four groups of eight columns of a warp's sixteen rows. A warp asks L2 for its
unit in several parts at once. One counter per sequence and row tile says how many warps have left
theirs, and who has seen them; it is zero between launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.epilogue import Epilogue
from mla_var3.kernel.cute_python.kit.even import Cut
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS, Handover, sync
from mla_var3.kernel.cute_python.kit.joined import COLUMN_GROUPS, NUMBERS, numbers_of, quads_of
from mla_var3.kernel.cute_python.kit.l2 import SIGNALS
from mla_var3.kernel.cute_python.kit.members import MembersSchedule, MembersWork
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.short import ShortKernel
from mla_var3.kernel.cute_python.kit.slabs import HALF, ROWS, SLABS
from mla_var3.kernel.cute_python.kit.softmax import LOWEST
from mla_var3.kernel.cute_python.kit.stores import complete_sums, inverse_sum
from mla_var3.kernel.cute_python.kit.warpgroups import Side

#: Groups of eight columns of a unit, and units of a warp's rows.
WIDE, UNITS = 4, 2 * COLUMN_GROUPS // 4
#: Consumer warps, lanes of each, and warps of a row tile.
WARPS, LANES, TALL = CONSUMERS // 32, 32, 4
#: Parts of a unit that a warp asks for at once.
AT_ONCE = 4
#: What a reader adds to a counter of warps, more than there are of these.
READER = 1 << 16
#: fp32 values that a lane has of a unit: two maxima, two sums, and four of each group.
KEPT = 4 + 4 * WIDE

UnitsWork = NamedTuple("UnitsWork", [*MembersWork.__annotations__.items(), ("begun", Int32)])


@dataclass(frozen=True)
class UnitsSchedule(MembersSchedule):
    """The even schedule, which also names the worker that began what this one goes on with."""

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA. Groups of one worker are neighbors: they read the same keys."""
        work = MembersSchedule.work(self, where, lse, masked)
        return UnitsWork(*work, begun=where[2][work.worker, int(Cut.OWNER)])

    def began(self, work, worker):
        """Where a worker leaves its part of a sequence that it begins."""
        return 2 * (worker * work.groups + work.group) * self.share + work.block % self.share


class UnitsKernel(ShortKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    def __init__(self, lazy, share, box, keep=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            share: CTAs of a cluster, which hold neighboring row tiles and share their keys.
            box: Keys that one load takes.
            keep: Whether L2 keeps keys as long as anything else.
        """
        super().__init__(lazy, share, box, keep)
        self.epilogue, self.schedule = Epilogue(1), UnitsSchedule(share)

    # ---- consumer warpgroups ---------------------------------------------------------------
    def release_last(self, wg, even, odd, side):
        """Nothing: ``finish`` gives back the place of a sequence's last tile."""

    # ---- results ---------------------------------------------------------------------------
    @cute.jit
    def finish(self, wg, storage, work, outputs, slots, sequence, part, side: cutlass.Constexpr):
        """The output of a whole sequence, or a part of one for those that merge it."""
        start, stop, _ = part
        complete_sums(wg, side)
        goes_on = (sequence == work.last) & (work.last_tile > 0)
        alone = (start == 0) & ((goes_on == 0) | (work.final == work.owner + 1))
        single = (stop - start) % 2 == 1
        if alone:
            if goes_on:
                self.take(wg, work, slots, self.schedule.place(work, work.final), side)
            else:
                for r in range_constexpr(2):
                    wg.shrink[r] = inverse_sum(wg, r)
                for i in range_constexpr(cute.size(wg.out)):
                    wg.out[i] = wg.out[i] * wg.shrink[i // 2 % 2]
            first = Int32(0) if single else Int32(SLABS)
            self.send(wg, storage, outputs, work, sequence, first, side)
        if single:
            self.release(wg, Free.EVEN_LEFT + side)
        else:
            self.release(wg, Free.ODD_LEFT + side)
        if alone == 0:
            kind = Int32(0) if goes_on else Int32(self.share)
            owner = work.worker if start == 0 else work.begun
            final = work.final if goes_on else work.worker
            self.leave_part(wg, work, slots, work.slot + kind, (owner, final), side)

    def signal(self, work, slot, owner, many, side):
        """Which signal says that a part has come: its warp's, or of many parts the sequence's."""
        row = cutlass.select_(many, 2 * self.schedule.began(work, owner), 2 * slot + side)
        return row, cutlass.select_(many, Int32(0), cute.arch.warp_idx() % SIGNALS)

    @cute.jit
    def leave_part(self, wg, work, slots, slot, holders, side: cutlass.Constexpr):
        """Write a part to a slot, and say so."""
        places, signals, _ = slots
        owner, final = holders
        if self.lives(wg, work):
            numbers, quads = numbers_of(places, slot, side), quads_of(places, slot, side)
            quad = cute.make_rmem_tensor(4, Float32)
            for j in range_constexpr(COLUMN_GROUPS):
                for i in range_constexpr(4):
                    quad[i] = wg.out[4 * j + i]
                cute.autovec_copy(quad, quads[None, j])
            if wg.lane % 4 == 0:
                for r in range_constexpr(2):
                    pair = cute.make_rmem_tensor(2, Float32)
                    pair[0], pair[1] = wg.row_max[r], wg.row_sum[r]
                    cute.autovec_copy(pair, numbers[wg.row + 8 * r, None])
            cute.arch.sync_warp()  # all that the warp has written is before its release
            with cute.arch.elect_one():
                at = self.signal(work, slot, owner, final - owner > 1, side)
                cute.arch.red(
                    cute.domain_offset(at, signals).iterator,
                    Int32(1), op="add", dtype=Int32, sem="release", scope="gpu",
                )  # fmt: skip

    # ---- merges of three parts and more ----------------------------------------------------
    @cute.jit
    def consumed(self, storage, work, outputs, slots):
        """Merge some units of the sequence that this worker ends with, with all who do."""
        stays = (work.last_tile > 0) | ((work.worker == work.final) & (work.ends > 0))
        if stays & (work.final - work.owner > 1):
            members, units = work.final - work.owner + work.ends, UNITS * self.living(work)
            each = cute.ceil_div(units, members)
            first = (work.worker - work.owner) * each
            if first < units:
                self.await_all(work, slots[1], cute.ceil_div(units, each))
                count = cutlass.min(each, units - first)
                self.merge_units(storage, work, outputs, slots, first, count)

    @cute.jit
    def await_all(self, work, signals, readers):
        """Wait for all parts; the last reader clears the counter."""
        at = (2 * self.schedule.began(work, work.owner), 0)
        counter = cute.domain_offset(at, signals).iterator
        if cute.arch.thread_idx()[0] == 0:
            warps = (work.final - work.owner + 1) * 2 * self.living(work)
            while cute.arch.load(counter, Int32, sem="acquire", scope="gpu") % READER < warps:
                pass
        sync(Handover.FIRST_PIECE)
        if cute.arch.thread_idx()[0] == CONSUMERS - 1:
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
        sums = cute.make_rmem_tensor((2, 2), Float32)  # maximum and sum of two rows
        acc = cute.make_rmem_tensor((4, WIDE), Float32)
        shared = cute.make_tensor(
            cute.recast_ptr(storage.q.data_ptr(), dtype=Float32),
            cute.make_layout((LANES, KEPT, WARPS)),
        )[lane, None, None]  # fmt: skip
        for n in cutlass.range(cute.ceil_div(units, at_once), unroll=1):
            number = warp // team + n * at_once
            unit = first + cutlass.min(number, units - 1)
            self.add_parts(work, slots[0], unit, warp % team, team, lane, sums, acc)
            if team > 1:
                for i in range_constexpr(4):
                    shared[i, warp] = sums[i]
                for i in range_constexpr(4 * WIDE):
                    shared[4 + i, warp] = acc[i]
                sync(Handover.FIRST_PIECE)
                if warp % team == 0:
                    for other in cutlass.range(warp + 1, warp + team, unroll=1):
                        self.add_shared(shared[None, other], sums, acc)
            if (warp % team == 0) & (number < units):
                self.store_unit(work, outputs, slots[2], unit, lane, sums, acc)

    def place_of_unit(self, work, unit):
        """Side, first group of columns, and warp of a unit."""
        lives = self.living(work)
        side = unit // (UNITS // 2 * lives)
        return side, unit // lives % (UNITS // 2) * WIDE, unit % lives

    @cute.jit
    def add_parts(self, work, places, unit, first, step, lane, sums, acc):
        """Add every ``step``-th part of a unit; loads of some stand before the first use of one."""
        side, j, warp = self.place_of_unit(work, unit)
        for r in range_constexpr(2):
            sums[0, r], sums[1, r] = Float32(LOWEST), Float32(0.0)
        acc.fill(0.0)
        pairs = cute.make_rmem_tensor((2, 2, AT_ONCE), Float32)  # maximum and sum, row, part
        quads = cute.make_rmem_tensor((4, WIDE, AT_ONCE), Float32)
        parts = work.final - work.owner + 1
        row, value = warp * 16 + lane // 4, NUMBERS + j * 512 + (warp * LANES + lane) * 4
        for part in cutlass.range(first, parts, step * AT_ONCE, unroll=1):
            for n in range_constexpr(AT_ONCE):
                worker = work.owner + cutlass.min(part + n * step, parts - 1)
                place = places[2 * self.schedule.place(work, worker) + side, None]
                for r in range_constexpr(2):
                    pair = cute.local_tile(place, (2,), (row + 8 * r,))
                    cute.autovec_copy(pair, pairs[None, r, n])
                for c in range_constexpr(WIDE):
                    quad = cute.local_tile(place, (4,), (value // 4 + 128 * c,))
                    cute.autovec_copy(quad, quads[None, c, n])
            for r in range_constexpr(2):
                top = sums[0, r]
                for n in range_constexpr(AT_ONCE):
                    there = part + n * step < parts
                    pairs[0, r, n] = cutlass.select_(there, pairs[0, r, n], -Float32.inf)
                    top = cute.arch.fmax(top, pairs[0, r, n])
                kept = cute.math.exp2(sums[0, r] - top, fastmath=True)
                sums[0, r], sums[1, r] = top, sums[1, r] * kept
                for c in range_constexpr(WIDE):
                    for i in range_constexpr(2 * r, 2 * r + 2):
                        acc[i, c] = acc[i, c] * kept
                for n in range_constexpr(AT_ONCE):
                    weight = cute.math.exp2(pairs[0, r, n] - top, fastmath=True)
                    sums[1, r] = sums[1, r] + pairs[1, r, n] * weight
                    for c in range_constexpr(WIDE):
                        for i in range_constexpr(2 * r, 2 * r + 2):
                            acc[i, c] = acc[i, c] + quads[i, c, n] * weight

    @cute.jit
    def add_shared(self, other, sums, acc):
        """Add what another warp of the team has of the same unit."""
        for r in range_constexpr(2):
            theirs, mine = other[2 * r], sums[0, r]
            top = cute.arch.fmax(mine, theirs)
            theirs = cute.math.exp2(theirs - top, fastmath=True)
            mine = cute.math.exp2(mine - top, fastmath=True)
            sums[0, r], sums[1, r] = top, sums[1, r] * mine + other[2 * r + 1] * theirs
            for c in range_constexpr(WIDE):
                for i in range_constexpr(2 * r, 2 * r + 2):
                    acc[i, c] = acc[i, c] * mine + other[4 + 4 * c + i] * theirs

    @cute.jit
    def store_unit(self, work, outputs, o, unit, lane, sums, acc):
        """A unit's values of two rows; of the first columns the LSE."""
        side, j, warp = self.place_of_unit(work, unit)
        for r in range_constexpr(2):
            row = work.block * ROWS + warp * 16 + lane // 4 + 8 * r
            total = sums[1, r]
            inverse = Float32(0.0) if total == 0.0 else Float32(1.0) / total
            if row < work.heads * work.queries:
                out = o[work.last, row // work.heads, row % work.heads, None]
                for c in range_constexpr(WIDE):
                    pair = cute.make_rmem_tensor(2, self.out_dtype)
                    for i in range_constexpr(2):
                        pair[i] = (acc[2 * r + i, c] * inverse).to(self.out_dtype)
                    at = side * (HALF // 2) + 4 * (j + c) + lane % 4
                    cute.autovec_copy(pair, cute.local_tile(out, (2,), (at,)))
                if (side == Side.LEFT) & (j == 0) & (lane % 4 == 0):
                    value = (sums[0, r] + cute.math.log2(total, fastmath=True)) * outputs[3]
                    value = outputs[4] if total == 0.0 else value
                    outputs[2][work.last, row % work.heads, row // work.heads, 0] = value
