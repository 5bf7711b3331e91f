"""Parts of sequences, merged within attention by the workers that end with them.

A worker that ends with a sequence that it does not finish merges that sequence. Where two workers
have one, the first keeps its part in registers and adds the other's, which was left early on. Where
more have one, each of them but the last merges some columns of the output. So nobody waits but at
its end, and no second launch is needed. Worker 0 is the last cluster: the one that a worker waits
for was started before it.

What a warp leaves is read by the same warp of other CTAs, as its fragments lie: a signal per warp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.even import Cut, EvenSchedule
from mla_var3.kernel.cute_python.kit.l2 import SIGNALS
from mla_var3.kernel.cute_python.kit.paged import PagedKernel
from mla_var3.kernel.cute_python.kit.pages import as_token_rows, page_loads
from mla_var3.kernel.cute_python.kit.rings import latent_storage
from mla_var3.kernel.cute_python.kit.schedule import rank_in_cluster
from mla_var3.kernel.cute_python.kit.slabs import EVICT_FIRST, HALF, ROWS, SLAB, SLABS, slab_layout
from mla_var3.kernel.cute_python.kit.softmax import LOWEST
from mla_var3.kernel.cute_python.kit.stores import complete_sums, inverse_sum
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS, Side

#: Groups of eight columns that a warpgroup holds; at most so many workers merge a sequence.
COLUMN_GROUPS = HALF // 8
#: Numbers before the values of a place: maximum and sum of each row.
NUMBERS = 2 * ROWS
#: Workers up to which groups of columns are read side by side, above which parts are.
FEW = 8


class JoinedWork(NamedTuple):
    """Work of a CTA, and who else has a part of the sequence that it ends with."""

    table: cute.Tensor
    lengths: cute.Tensor
    first: Int32
    first_tile: Int32
    last: Int32
    last_tile: Int32
    block: Int32
    slot: Int32
    heads: Int32
    queries: Int32
    masked: Int32
    worker: Int32
    owner: Int32  # worker that began that sequence
    final: Int32  # worker that finishes it
    group: Int32  # of row tiles
    groups: Int32


@dataclass(frozen=True)
class JoinedSchedule(EvenSchedule):
    """The even schedule, from the last worker to the first."""

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA. Groups of one worker are neighbors: they read the same keys."""
        table, lengths, cuts = where
        _, heads, queries, _ = lse.shape
        groups = self.groups(heads * queries)
        cluster = cute.arch.make_warp_uniform(cute.arch.cluster_idx()[0])
        worker, group = cuts.shape[0] - 1 - cluster // groups, cluster % groups
        rank, cut = rank_in_cluster(), cuts[worker, None]
        first, first_tile = cut[int(Cut.SEQUENCE)], cut[int(Cut.TILE)]
        last, last_tile = cut[int(Cut.END_SEQUENCE)], cut[int(Cut.END_TILE)]
        last = last - 1 if last_tile == 0 else last
        owner = cut[int(Cut.OWNER)] if (last == first) & (first_tile > 0) else worker
        final = cuts[cutlass.max(owner, 0), int(Cut.LAST)]
        return JoinedWork(
            table, lengths, first, first_tile, last, last_tile,
            group * self.share + rank, 2 * (worker * groups + group) * self.share + rank,
            heads, queries, masked, worker, owner, final, group, groups,
        )  # fmt: skip

    def place(self, work, worker):
        """Where a worker left its part of the sequence that this one ends with."""
        first = 2 * (worker * work.groups + work.group) * self.share + work.block % self.share
        return first + self.share * Int32(worker == work.final)


def numbers_of(places, slot, side):
    """Maxima and sums [64, 2] that one side left in a slot."""
    place = places[2 * slot + side, None]
    return cute.make_tensor(place.iterator, cute.make_layout((ROWS, 2), stride=(2, 1)))


def quads_of(places, slot, side):
    """The thread's own values that one side left in a slot: [4, 32]; a warp moves 512 bytes."""
    place = cute.domain_offset(NUMBERS, places[2 * slot + side, None])
    quads = cute.local_tile(place, (4,), (cute.arch.thread_idx()[0] % 128,))
    return cute.make_tensor(quads.iterator, cute.make_layout((4, COLUMN_GROUPS), stride=(1, 512)))


def signal_of(signals, slot, side):
    """Address of this warp's signal for what one side left in a slot."""
    return cute.domain_offset((2 * slot + side, cute.arch.warp_idx() % SIGNALS), signals).iterator


class JoinedKernel(PagedKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    def __init__(self, lazy, share, box, keep=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            share: CTAs of a cluster, which hold neighboring row tiles and share their keys.
            box: Keys that one load takes.
            keep: Whether L2 keeps keys as long as anything else.
        """
        super().__init__(lazy, share, box)
        self.schedule = JoinedSchedule(share)
        self.policy = None if keep else EVICT_FIRST

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        table: cute.Tensor,
        lengths: cute.Tensor,
        cuts: cute.Tensor,
        places: cute.Tensor,
        signals: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        masked: Int32,
        scale_log2: Float32,
        lse_unit: Float32,
        lse_empty: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [b,s,h,512], qpe [b,s,h,64], z [pages,page,512], kpe [pages,page,64]."""
        self.dtype = self.out_dtype = q.element_type
        self.storage = latent_storage(
            q.element_type, self.queries.barriers, self.rings, self.epilogue.fields()
        )
        slab = cute.slice_(slab_layout(self.dtype, 1), (None, None, 0))
        load = cpasync.CopyBulkTensorTileG2SOp()
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_token_rows(x), slab, (SLAB, SLAB))
            for x in (q, qpe)
        ]
        load_z, load_kpe = [page_loads(x, self.box, self.share) for x in (z, kpe)]
        store = cpasync.CopyBulkTensorTileS2GOp()
        store_o = cpasync.make_tiled_tma_atom(store, as_token_rows(o), slab, (SLAB, SLAB))
        loads = (*load_q, *load_qpe), (*load_z, *load_kpe)
        outputs = (*store_o, lse, lse_unit, lse_empty)
        where, slots = (table, lengths, cuts), (places, signals, o)
        self.paged_attention(*loads, where, slots, outputs, masked, scale_log2).launch(
            **self.schedule.launch(q, cuts),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            cooperative=True,  # all CTAs run at once, as they must where three share a sequence
        )

    # ---- results ---------------------------------------------------------------------------
    @cute.jit
    def finish(self, wg, storage, work, outputs, slots, sequence, part, side: cutlass.Constexpr):
        """The output of a whole sequence, or a part of one for those that merge it, or a merge."""
        start, stop, _ = part
        complete_sums(wg, side)
        goes_on = (sequence == work.last) & (work.last_tile > 0)
        alone = (start == 0) & ((goes_on == 0) | (work.final == work.owner + 1))
        if alone == 0:
            kind = Int32(0) if goes_on else Int32(self.share)
            self.leave(wg, work, slots, work.slot + kind, side)
        if alone:
            if goes_on:
                self.take(wg, work, slots, self.schedule.place(work, work.final), side)
            for r in range_constexpr(2):
                wg.shrink[r] = inverse_sum(wg, r)
            for i in range_constexpr(cute.size(wg.out)):
                wg.out[i] = wg.out[i] * wg.shrink[i // 2 % 2]
            first = Int32(0) if (stop - start) % 2 == 1 else Int32(SLABS)
            self.send(wg, storage, outputs, work, sequence, first, side)
        elif goes_on & self.lives(wg, work):
            members = work.final - work.owner
            if members < FEW:
                self.join(wg, work, outputs, slots, sequence, members, 8, 2, side)
            else:
                self.join(wg, work, outputs, slots, sequence, members, 1, 16, side)

    def lives(self, wg, work):
        """Whether any of the warp's rows is one of the sequence's; the same for the whole warp."""
        first = work.block * ROWS + cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 * 16
        return first < work.heads * work.queries

    @cute.jit
    def leave(self, wg, work, slots, slot, side: cutlass.Constexpr):
        """Write a part to a slot, and say so."""
        places, signals, _ = slots
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
                cute.arch.red(
                    signal_of(signals, slot, side),
                    Int32(1), op="add", dtype=Int32, sem="release", scope="gpu",
                )  # fmt: skip

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

    # ---- merges of three parts and more ----------------------------------------------------
    @cute.jit
    def join(
        self,
        wg,
        work,
        outputs,
        slots,
        sequence,
        members,
        side_by_side: cutlass.Constexpr,
        at_once: cutlass.Constexpr,
        side: cutlass.Constexpr,
    ):
        """Merge this member's groups of columns, some of them and some parts at once."""
        member = work.worker - work.owner
        if member < COLUMN_GROUPS:
            self.await_all(wg, work, slots[1], cutlass.min(members, COLUMN_GROUPS), side)
            step = members * side_by_side
            for j in cutlass.range(member, COLUMN_GROUPS, step, unroll=1):
                self.join_columns(
                    wg, work, outputs, slots, sequence, (j, members), side_by_side, at_once, side
                )

    @cute.jit
    def await_all(self, wg, work, signals, readers, side: cutlass.Constexpr):
        """Wait until all have left their parts; the last who has seen a signal clears it."""
        for worker in cutlass.range(work.owner + wg.lane, work.final + 1, 32, unroll=1):
            signal = signal_of(signals, self.schedule.place(work, worker), side)
            while cute.arch.load(signal, Int32, sem="acquire", scope="gpu") == 0:
                pass
            before = cute.arch.atomic_add(signal, Int32(1), sem="relaxed", scope="gpu")
            if before == readers:
                cute.arch.store(signal, Int32(0), sem="relaxed", scope="gpu")
        cute.arch.sync_warp()  # all lanes have seen theirs

    @cute.jit
    def join_columns(
        self,
        wg,
        work,
        outputs,
        slots,
        sequence,
        columns,
        side_by_side: cutlass.Constexpr,
        at_once: cutlass.Constexpr,
        side: cutlass.Constexpr,
    ):
        """Read the parts of some groups of columns, add them by their maxima, and store."""
        places, _, o = slots
        first, step = columns
        top, total = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
        sums = cute.make_rmem_tensor((4, side_by_side), Float32)
        top.fill(LOWEST)
        total.fill(0.0)
        sums.fill(0.0)
        pairs = cute.make_rmem_tensor((2, 2, at_once), Float32)
        quads = cute.make_rmem_tensor((4, side_by_side, at_once), Float32)
        for part in cutlass.range(work.owner, work.final + 1, at_once, unroll=1):
            # All loads before the first use, so that one waits under the others.
            for n in range_constexpr(at_once):
                slot = self.schedule.place(work, cutlass.min(part + n, work.final))
                numbers, values = numbers_of(places, slot, side), quads_of(places, slot, side)
                for r in range_constexpr(2):
                    cute.autovec_copy(numbers[wg.row + 8 * r, None], pairs[None, r, n])
                for c in range_constexpr(side_by_side):
                    j = cutlass.min(first + c * step, COLUMN_GROUPS - 1)
                    cute.autovec_copy(values[None, j], quads[None, c, n])
            for n in range_constexpr(at_once):
                if part + n <= work.final:
                    self.add(top, total, sums, pairs[None, None, n], quads[None, None, n])
        if (side == Side.LEFT) & (first == 0):
            for r in range_constexpr(2):
                wg.row_max[r], wg.row_sum[r] = top[r], total[r]
            self.store_lse(wg, work, outputs[2], sequence, outputs[3], outputs[4])
        for c in range_constexpr(side_by_side):
            if first + c * step < COLUMN_GROUPS:
                self.store_columns(
                    wg, work, o, sequence, first + c * step, total, sums[None, c], side
                )

    @cute.jit
    def add(self, top, total, sums, pairs, quads):
        """Add a part to what there is."""
        for r in range_constexpr(2):
            new = cute.arch.fmax(top[r], pairs[0, r])
            mine = cute.math.exp2(top[r] - new, fastmath=True)
            theirs = cute.math.exp2(pairs[0, r] - new, fastmath=True)
            total[r] = total[r] * mine + pairs[1, r] * theirs
            top[r] = new
            for c in range_constexpr(cute.size(sums) // 4):
                for i in range_constexpr(2):
                    at = 2 * r + i
                    sums[at, c] = sums[at, c] * mine + quads[at, c] * theirs

    @cute.jit
    def store_columns(self, wg, work, o, sequence, j, total, sums, side: cutlass.Constexpr):
        """Two values of each of the thread's rows to the output."""
        for r in range_constexpr(2):
            row = work.block * ROWS + wg.row + 8 * r
            inverse = Float32(0.0) if total[r] == 0.0 else Float32(1.0) / total[r]
            if row < work.heads * work.queries:
                out = o[sequence, row // work.heads, row % work.heads, None]
                pair = cute.make_rmem_tensor(2, self.out_dtype)
                for i in range_constexpr(2):
                    pair[i] = (sums[2 * r + i] * inverse).to(self.out_dtype)
                at = side * (HALF // 2) + 4 * j + wg.lane % 4
                cute.autovec_copy(pair, cute.local_tile(out, (2,), (at,)))
