"""Kernel of latent attention over a paged KV cache, with sequences of any lengths balanced evenly.

A worker (a CTA, or two that share their keys) takes what lies between two cuts, sequence by
sequence. Tiles of keys are counted one by one: a part with an odd number of them ends with an even
tile alone. What holds a whole sequence is an output; a part goes to a slot, and ``slots`` merges.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.epilogue import Epilogue
from mla_var3.kernel.cute_python.kit.even import EvenSchedule
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS, Handover, arrive, sync
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.pages import (
    PageLoads,
    as_token_rows,
    hide_in_boxes,
    page_loads,
)
from mla_var3.kernel.cute_python.kit.products import RMEM, SMEM, accumulate, score_mma, scores
from mla_var3.kernel.cute_python.kit.queries import SlabQueries
from mla_var3.kernel.cute_python.kit.rings import Free, latent_storage
from mla_var3.kernel.cute_python.kit.slabs import (
    EVICT_FIRST,
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLAB,
    SLAB_BYTES,
    SLABS,
    SlabLoads,
    shared_slabs,
    slab_layout,
    tma_parts,
)
from mla_var3.kernel.cute_python.kit.softmax import (
    LOWEST,
    adopt_max,
    publish_max,
    rescale,
    softmax,
    store_weights,
)
from mla_var3.kernel.cute_python.kit.stores import complete_sums, inverse_sum
from mla_var3.kernel.cute_python.kit.warpgroups import (
    CONSUMER_REGISTERS,
    EVEN_ORDER,
    PRODUCER_REGISTERS,
    THREADS,
    Side,
    views,
)


class PagedKernel(LatentKernel):
    """Host and device half for a box of keys and CTAs that share them; the mask comes at launch."""

    queries = SlabQueries()
    prefetch = True
    relaxed = True
    #: L2 policy of the loads of keys, and how their places are found.
    policy = EVICT_FIRST
    loads = PageLoads

    def __init__(self, lazy, share, box):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            share: CTAs of a cluster, which hold neighboring row tiles and share their keys.
            box: Keys that one load takes.
        """
        self.lazy, self.share, self.box = lazy, share, box
        self.schedule, self.epilogue = EvenSchedule(share), Epilogue(1)
        self.hide = hide_in_boxes(box)

    def weigh(self, wg, tile):
        """Scores of a tile to weights, and of places without keys to none."""
        softmax(wg, tile, self.lazy, self.hide)

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
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
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
        where, slots = (table, lengths, cuts), (partial, partial_lse)
        self.paged_attention(*loads, where, slots, outputs, masked, scale_log2).launch(
            **self.schedule.launch(q, cuts),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def paged_attention(
        self,
        q_loads: tuple,
        kv_loads: tuple,
        where: tuple,
        slots: tuple,
        outputs: tuple,
        masked: Int32,
        scale_log2: Float32,
    ):
        """Grid as the schedule says; loads are TMA atoms and their tensors, latent part first."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.fetch_descriptors(warp_index, (*q_loads[::2], *kv_loads[::2], outputs[0]))
        self.init_barriers(storage, warp_index)
        work = self.schedule.work(where, outputs[2], masked)
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            for group in range_constexpr(4):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_loads, kv_loads, work, group)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, slots, side)
            self.consumed(storage, work, outputs, slots)
        self.end()

    def consumed(self, storage, work, outputs, slots):
        """What both consumer warpgroups do after all parts: nothing, unless a version says so."""

    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: half a tile of each pair; of a right half also the rope slab, first."""
        s_q = shared_slabs(storage.q, self.dtype, SLABS)
        s_kv = shared_slabs(storage.kv, self.dtype, 2 * SLABS)
        q_loads = SlabLoads(*q_tensors, s_q)
        rank = self.schedule.rank()
        kv_loads = self.loads(kv_tensors, s_kv, work.table, self.box, self.share, rank, self.policy)
        odd, entries = group // 2, kv_loads.entries()
        taken, done = Int32(0), Int32(0)  # sequences, and tiles of this parity, before this one
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, group)
            count = (stop - start + 1 - odd) // 2
            self.look_up(kv_loads, entries, sequence, length, start + odd)
            for i in cutlass.range(count, unroll=1):
                tile = start + 2 * i + odd
                phase = ((done + i) & 1) ^ 1
                self.load_next(storage, kv_loads, entries, sequence, length, tile, phase, group)
            taken, done = taken + 1, done + count

    @cute.jit
    def load_next(
        self, storage, kv_loads, entries, sequence, length, tile, phase, group: cutlass.Constexpr
    ):
        """Load a tile, and find the pages of the one after it."""
        self.load_tile(storage, kv_loads, entries, tile, length, phase, group)
        self.look_up(kv_loads, entries, sequence, length, tile + 2)

    @cute.jit
    def look_up(self, kv_loads, entries, sequence, length, tile):
        """Find the pages of a tile, one tile ahead of its loads."""
        kv_loads.look_up(entries, sequence, length, tile)

    @cute.jit
    def load_tile(self, storage, kv_loads, entries, tile, length, parity, group: cutlass.Constexpr):
        """This warp's slabs of a tile, each half as it comes free."""
        odd, right = group // 2, group % 2
        full, free = storage.full.data_ptr() + odd * SLABS, storage.free.data_ptr()
        if const_expr(right):
            cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + odd, parity)
            self.load_page_slab(kv_loads, ROPE_SLAB, entries, tile, length, odd * SLABS, full)
        cute.arch.mbarrier_wait(free + group, parity)
        for slab in range_constexpr(4 * right, 4 * right + 4):
            self.load_page_slab(kv_loads, slab, entries, tile, length, odd * SLABS, full)

    @cute.jit
    def load_page_slab(
        self,
        kv_loads,
        slab: cutlass.Constexpr,
        entries,
        tile,
        length,
        first: cutlass.Constexpr,
        full,
    ):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + slab, SLAB_BYTES)
        kv_loads.issue(slab, entries, tile, length, first + slab, full + slab)

    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, slots, side: cutlass.Constexpr):
        """One warpgroup, from queries to its half of the output, sequence after sequence."""
        wg = self.views(storage, scale_log2, side)
        taken, evens, odds = Int32(0), Int32(0), Int32(0)  # sequences and tiles before this one
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, whole = self.schedule.part(work, sequence, length)
            self.begin(wg, storage, work, length, start * KEYS, taken & 1)
            even, odd = (stop - start + 1) // 2, (stop - start) // 2
            if const_expr(side == Side.LEFT):
                queries = self.first_queries(storage, taken & 1)
                self.left_tiles(wg, even, odd, evens, queries)
            else:
                self.queries.await_rest(storage, taken & 1)
                self.right_tiles(wg, even, odd, odds)
            self.finish(wg, storage, work, outputs, slots, sequence, (start, stop, whole), side)
            # After their last use, which may have been as the output's way out.
            if even > odd:
                self.release(wg, Free.EVEN_LEFT + side)
            else:
                self.release(wg, Free.ODD_LEFT + side)
            taken, evens, odds = taken + 1, evens + even, odds + odd

    def views(self, storage, scale_log2, side):
        """Views of one side, with a fourth number in ``limit``."""
        wg = views(storage, self.dtype, scale_log2, side)
        return wg._replace(limit=cute.make_rmem_tensor(cute.make_layout(4), Int32))

    def first_queries(self, storage, phase):
        """What the first scores wait for, slab by slab."""
        return self.queries.first(storage, phase)

    @cute.jit
    def begin(self, wg, storage, work, length, first_key, phase):
        """Empty sums, what rows see, and the queries' rope slab in registers."""
        wg.out.fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        first = work.block * ROWS
        for r in range_constexpr(2):
            wg.limit[r] = self.seen(work, first + wg.row + 8 * r, length) - first_key
        wg.limit[2] = self.seen(work, first, length) - first_key
        wg.limit[3] = length - first_key
        cute.arch.mbarrier_wait(self.queries.rope(storage), phase)
        self.take_rope(wg, storage)

    def seen(self, work, row, length):
        """One past the last key that a row sees; bottom-right aligned, so it may be below 1."""
        return cutlass.min(row // work.heads + (length - work.masked + 1), length)

    @cute.jit
    def left_tiles(self, wg, even, odd, evens, queries):
        """Weights of the even tiles, columns 0 to 255 of the output."""
        scores(wg, Side.LEFT, EVEN_ORDER, True, evens & 1, queries)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_ROPE)
        for i in cutlass.range(even - 1, unroll=1):
            self.left_pair(wg, i, (evens + i + 1) & 1, False)
        self.release(wg, Free.Q)
        if even > odd:
            self.left_alone(wg, even - 1)
        else:
            self.left_last(wg, even - 1)
        self.release(wg, Free.Q_ROPE)

    @cute.jit
    def left_last(self, wg, i):
        self.left_pair(wg, i, 0, True)

    @cute.jit
    def left_alone(self, wg, i):
        """An even tile that no odd one follows."""
        self.weigh(wg, 2 * i)
        publish_max(wg, Side.LEFT)
        arrive(Handover.EVEN_MAX)
        sync(Handover.ODD_MAX)  # right no longer reads the weights before these
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.EVEN_WEIGHTS)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.LEFT)
        warpgroup.wait_group(0)

    @cute.jit
    def right_tiles(self, wg, even, odd, odds):
        """Weights of the odd tiles, columns 256 to 511 of the output."""
        for i in cutlass.range(odd, unroll=1):
            self.right_pair(wg, i, (odds + i) & 1, i + 1 < even)
        self.release(wg, Free.Q)
        if even > odd:
            self.right_alone(wg)

    @cute.jit
    def right_alone(self, wg):
        """Left's even tile that no odd one follows."""
        arrive(Handover.ODD_MAX)
        sync(Handover.EVEN_MAX)
        adopt_max(wg, Side.LEFT)
        rescale(wg.out, wg.shrink)
        sync(Handover.EVEN_WEIGHTS)
        accumulate(wg, SMEM, wg.peer_weights, Side.LEFT)
        warpgroup.wait_group(0)

    # ---- results ---------------------------------------------------------------------------
    @cute.jit
    def finish(self, wg, storage, work, outputs, slots, sequence, part, side: cutlass.Constexpr):
        """The output of a whole sequence, or a part of one in its slot."""
        start, stop, whole = part
        complete_sums(wg, side)
        for r in range_constexpr(2):
            wg.shrink[r] = inverse_sum(wg, r)
        for i in range_constexpr(cute.size(wg.out)):
            wg.out[i] = wg.out[i] * wg.shrink[i // 2 % 2]
        if whole:
            first = Int32(0) if (stop - start) % 2 == 1 else Int32(SLABS)
            self.send(wg, storage, outputs, work, sequence, first, side)
        else:
            slot = work.slot if start > 0 else work.slot + self.share
            self.put(wg, slots, slot, side)

    @cute.jit
    def send(self, wg, storage, outputs, work, sequence, first, side: cutlass.Constexpr):
        """The output by way of slabs that are read no more; left stores the LSE."""
        store_o, o, lse, lse_unit, lse_empty = outputs
        if const_expr(side == Side.LEFT):
            self.store_lse(wg, work, lse, sequence, lse_unit, lse_empty)
        slabs = shared_slabs(storage.kv, self.dtype, 2 * SLABS)
        shared, out = tma_parts(store_o, cute.recast_tensor(slabs, self.out_dtype), o)
        for j in range_constexpr(4):
            into = first + 4 * side + j
            values = cute.make_tensor(wg.out.iterator + 32 * j, wg.score.layout)  # [64, 64]
            rounded = cute.make_rmem_tensor(wg.score.layout, self.out_dtype)
            rounded.store(values.load().to(self.out_dtype))
            bits = cute.recast_tensor(rounded, self.dtype)
            target = wg.store_thread.partition_D(slabs[None, None, into])
            cute.copy(wg.store, wg.store_thread.retile(bits), target)
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(
                barrier_id=Handover.LEFT_OUTPUT + side, number_of_threads=CONSUMERS // 2
            )
            if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
                to = out[None, work.block, 4 * side + j, sequence]
                cute.copy(store_o, shared[None, into], to)
                cute.arch.cp_async_bulk_commit_group()
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def store_lse(self, wg, work, lse, sequence, unit, empty):
        for r in range_constexpr(2):
            row = work.block * ROWS + wg.row + 8 * r
            if (row < work.heads * work.queries) & (wg.lane % 4 == 0):
                value = (wg.row_max[r] + cute.math.log2(wg.row_sum[r], fastmath=True)) * unit
                value = empty if wg.row_sum[r] == 0.0 else value
                lse[sequence, row % work.heads, row // work.heads, 0] = value

    @cute.jit
    def put(self, wg, slots, slot, side: cutlass.Constexpr):
        """A part in fp32 as the fragments lie, and its LSE to base 2."""
        partial, partial_lse = slots
        if const_expr(side == Side.LEFT):
            for r in range_constexpr(2):
                if wg.lane % 4 == 0:
                    value = wg.row_max[r] + cute.math.log2(wg.row_sum[r], fastmath=True)
                    partial_lse[slot, wg.row + 8 * r] = value
        for j in range_constexpr(4):
            tile = cute.local_tile(partial[slot, None, None], (ROWS, SLAB), (0, 4 * side + j))
            thread = score_mma(self.dtype, SMEM).get_slice(cute.arch.thread_idx()[0] % 128)
            target = thread.partition_C(tile)  # ((2, 2, 8), 1, 1): columns, rows, column groups
            values = cute.make_tensor(wg.out.iterator + 32 * j, wg.score.layout)
            for r in range_constexpr(2):
                cute.autovec_copy(values[(None, r, None), 0, 0], target[(None, r, None), 0, 0])
