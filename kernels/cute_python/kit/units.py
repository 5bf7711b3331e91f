"""Merges of three parts and more of a sequence of many rows, from L2 into registers.

Each worker that ends with such a sequence merges some units: eight groups of eight columns of a
warp's sixteen rows. A warp asks L2 for its unit in several parts at once; where a worker has fewer
units than warps, some warps share a unit and each adds every so-many-th part. One counter per
sequence and row tile says how many warps have left theirs, and who has seen them; it is zero
between launches.
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
from mla_var3.kernel.cute_python.kit.joined import COLUMN_GROUPS, NUMBERS
from mla_var3.kernel.cute_python.kit.l2 import SIGNALS
from mla_var3.kernel.cute_python.kit.members import MembersSchedule, MembersWork
from mla_var3.kernel.cute_python.kit.short import ShortKernel
from mla_var3.kernel.cute_python.kit.slabs import HALF, ROWS
from mla_var3.kernel.cute_python.kit.softmax import LOWEST
from mla_var3.kernel.cute_python.kit.warpgroups import Side

#: Consumer warps, and lanes of each.
WARPS, LANES = CONSUMERS // 32, 32
#: What a reader adds to a counter of warps, more than there are of these.
READER = 1 << 16

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

    #: Groups of eight columns of a unit, and parts of one that a warp asks for at once.
    wide, at_once = 8, 2

    def __init__(self, lazy, share, box, keep=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            share: CTAs of a cluster, which hold neighboring row tiles and share their keys.
            box: Keys that one load takes.
            keep: Whether L2 keeps keys as long as anything else.
        """
        super().__init__(lazy, share, box, keep)
        #: Units of a warp's rows.
        self.units = 2 * COLUMN_GROUPS // self.wide
        self.epilogue, self.schedule = Epilogue(1), UnitsSchedule(share)

    # ---- results ---------------------------------------------------------------------------
    @cute.jit
    def leave(self, wg, work, slots, slot, side: cutlass.Constexpr):
        """Write a part to a slot, and say so; of three parts and more by the sequence's counter."""
        places, signals, o = slots
        ends = slot >= work.slot + self.share  # this part ends the sequence
        owner = cutlass.select_(ends, work.begun, work.owner)
        many = cutlass.select_(ends, work.worker, work.final) - owner > 1
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx()) % SIGNALS
        # Moved so that the signal of this warp in this slot is the counter.
        row = 2 * (self.schedule.began(work, owner) - slot) - side
        moved = (cutlass.select_(many, row, 0), cutlass.select_(many, -warp, 0))
        signals = cute.domain_offset(moved, signals)
        ShortKernel.leave(self, wg, work, (places, signals, o), slot, side)

    # ---- merges of three parts and more ----------------------------------------------------
    @cute.jit
    def consumed(self, storage, work, outputs, slots):
        """Merge some units of the sequence that this worker ends with, with all who do."""
        stays = (work.last_tile > 0) | ((work.worker == work.final) & (work.ends > 0))
        if stays & (work.final - work.owner > 1):
            members, units = work.final - work.owner + work.ends, self.units * self.living(work)
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
        abreast = WARPS // team
        sums = cute.make_rmem_tensor((2, 2), Float32)  # maximum and sum of two rows
        acc = cute.make_rmem_tensor((4, self.wide), Float32)
        shared = cute.make_tensor(
            cute.recast_ptr(storage.q.data_ptr(), dtype=Float32),
            cute.make_layout((LANES, 4 + 4 * self.wide, WARPS)),
        )[lane, None, None]  # fmt: skip
        for n in cutlass.range(cute.ceil_div(units, abreast), unroll=1):
            number = warp // team + n * abreast
            unit = first + cutlass.min(number, units - 1)
            self.add_parts(work, slots[0], unit, warp % team, team, lane, sums, acc)
            if team > 1:
                for i in range_constexpr(4):
                    shared[i, warp] = sums[i]
                for i in range_constexpr(4 * self.wide):
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
        side = unit // (self.units // 2 * lives)
        return side, unit // lives % (self.units // 2) * self.wide, unit % lives

    @cute.jit
    def add_parts(self, work, places, unit, first, step, lane, sums, acc):
        """Add every ``step``-th part of a unit; loads of some stand before the first use of one."""
        side, j, warp = self.place_of_unit(work, unit)
        for r in range_constexpr(2):
            sums[0, r], sums[1, r] = Float32(LOWEST), Float32(0.0)
        acc.fill(0.0)
        pairs = cute.make_rmem_tensor((2, 2, self.at_once), Float32)  # maximum and sum, row, part
        quads = cute.make_rmem_tensor((4, self.wide, self.at_once), Float32)
        parts = work.final - work.owner + 1
        row, value = warp * 16 + lane // 4, NUMBERS + j * 512 + (warp * LANES + lane) * 4
        for part in cutlass.range(first, parts, step * self.at_once, unroll=1):
            for n in range_constexpr(self.at_once):
                worker = work.owner + cutlass.min(part + n * step, parts - 1)
                place = places[2 * self.schedule.place(work, worker) + side, None]
                for r in range_constexpr(2):
                    pair = cute.local_tile(place, (2,), (row + 8 * r,))
                    cute.autovec_copy(pair, pairs[None, r, n])
                for c in range_constexpr(self.wide):
                    quad = cute.local_tile(place, (4,), (value // 4 + 128 * c,))
                    cute.autovec_copy(quad, quads[None, c, n])
            for r in range_constexpr(2):
                top = sums[0, r]
                for n in range_constexpr(self.at_once):
                    there = part + n * step < parts
                    pairs[0, r, n] = cutlass.select_(there, pairs[0, r, n], -Float32.inf)
                    top = cute.arch.fmax(top, pairs[0, r, n])
                kept = cute.math.exp2(sums[0, r] - top, fastmath=True)
                sums[0, r], sums[1, r] = top, sums[1, r] * kept
                for c in range_constexpr(self.wide):
                    for i in range_constexpr(2 * r, 2 * r + 2):
                        acc[i, c] = acc[i, c] * kept
                for n in range_constexpr(self.at_once):
                    weight = cute.math.exp2(pairs[0, r, n] - top, fastmath=True)
                    sums[1, r] = sums[1, r] + pairs[1, r, n] * weight
                    for c in range_constexpr(self.wide):
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
            for c in range_constexpr(self.wide):
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
                for c in range_constexpr(self.wide):
                    pair = cute.make_rmem_tensor(2, self.out_dtype)
                    for i in range_constexpr(2):
                        pair[i] = (acc[2 * r + i, c] * inverse).to(self.out_dtype)
                    at = side * (HALF // 2) + 4 * (j + c) + lane % 4
                    cute.autovec_copy(pair, cute.local_tile(out, (2,), (at,)))
                if (side == Side.LEFT) & (j == 0) & (lane % 4 == 0):
                    value = (sums[0, r] + cute.math.log2(total, fastmath=True)) * outputs[3]
                    value = outputs[4] if total == 0.0 else value
                    outputs[2][work.last, row % work.heads, row // work.heads, 0] = value
