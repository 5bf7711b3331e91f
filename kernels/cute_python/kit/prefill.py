"""Kernel of latent attention of query tokens over lists of rows that hold 16-bit values.

A CTA takes 64 heads of one list after another, whole, and says where it begins and ends itself: no
schedule is made beforehand. Halves of tiles come as ``prefill_loads`` sends for them.
Queries of the next list are sent for by the warpgroup that knows first that nobody reads the old
ones. Scores of both sides wait twice per tile, and fence there what copies have written.
"""

from __future__ import annotations

from collections import namedtuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS, Handover, arrive, sync
from mla_var3.kernel.cute_python.kit.pages import as_token_rows
from mla_var3.kernel.cute_python.kit.prefill_loads import PrefillLoads
from mla_var3.kernel.cute_python.kit.products import RMEM, SMEM, accumulate, score_mma
from mla_var3.kernel.cute_python.kit.rings import Free, latent_storage
from mla_var3.kernel.cute_python.kit.slabs import (
    ROPE_SLAB,
    ROWS,
    SLAB,
    SLABS,
    SlabLoads,
    shared_slabs,
    slab_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import (
    LN_2,
    LOWEST,
    adopt_max,
    publish_max,
    raised,
    reduced,
    rescale,
    rescale_weights,
    round_weights,
    store_weights,
)
from mla_var3.kernel.cute_python.kit.sparse import (
    SparseEpilogue,
    SparseWarpgroup,
    hide_unfilled,
)
from mla_var3.kernel.cute_python.kit.stores import complete_sums
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS, Side

RowsWarpgroup = namedtuple("RowsWarpgroup", [*SparseWarpgroup._fields, "highest"])


class RowsEpilogue(SparseEpilogue):
    """Shared memory beside the slabs: what is filled, highest scores of both sides, and sinks."""

    def fields(self):
        """Further fields of shared memory, before the slabs."""
        memory = cute.struct.MemRange
        more = {"tops": memory[Float32, 2 * ROWS], "sinks": memory[Float32, ROWS]}
        return {**super().fields(), **more}


class PrefillKernel(PrefillLoads):
    """Tokens of 576 values in bfloat16, or of 512; each row's highest score goes with its LSE."""

    def __init__(self, lazy, rope):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            rope: Whether rows have rotary values past their 512.
        """
        super().__init__(lazy)
        self.rope, self.epilogue = rope, RowsEpilogue(1)

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        cache: cute.Tensor,
        indices: cute.Tensor,
        lengths: cute.Tensor,
        sink: cute.Tensor,
        o: cute.Tensor,
        sums: cute.Tensor,
        tops: cute.Tensor,
        workers: Int32,
        counted: Int32,
        sunk: Int32,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [n,1,h,512], qpe [n,1,h,64], cache in bytes [1,tokens,width].

        ``indices`` [n,k] are lists, of which ``lengths`` [n] count if ``counted``; ``sink`` [h] is
        a logit per head if ``sunk``. ``sums`` [n,h] are natural LSEs, ``tops`` highest scores.
        """
        q_loads, store_o = self.prepare(q, qpe, o)
        groups = cute.ceil_div(q.shape[2], ROWS)
        where, outputs = (indices, lengths, counted), (*store_o, sums, tops, Int32(0))
        self.prefill(q_loads, cache, where, (sink, sunk), (), outputs, scale_log2).launch(
            grid=(cutlass.min(workers, q.shape[0]) * groups, 1, 1),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    @cute.jit
    def prepare(self, q, qpe, o):
        """Shared memory, loads of queries, and the store of outputs."""
        self.dtype = self.out_dtype = BFloat16
        self.storage = latent_storage(self.dtype, 2, self.rings, self.epilogue.fields())
        slab = cute.slice_(slab_layout(q.element_type, 1), (None, None, 0))
        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_token_rows(x), slab, (SLAB, SLAB))
            for x in (q, qpe)
        ]
        store_o = cpasync.make_tiled_tma_atom(store, as_token_rows(o), slab, (SLAB, SLAB))
        return (*load_q, *load_qpe), store_o

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def prefill(
        self,
        q_loads: tuple,
        cache: cute.Tensor,
        where: tuple,
        sinks: tuple,
        slots: tuple,
        outputs: tuple,
        scale_log2: Float32,
    ):
        """A CTA per worker and row tile; row tiles of a list are neighbors, which read the same."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.fetch_descriptors(warp_index, (*q_loads[::2], outputs[0]))
        work = self.work_of(where, outputs[2])
        self.keep_sinks(storage, work, *sinks)
        self.init_barriers(storage, warp_index)
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(self.registers[1])
            self.gather(storage, cache, work, warp_index - CONSUMERS // 32)
        else:
            cute.arch.setmaxregister_increase(self.registers[0])
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, q_loads, scale_log2, outputs, slots, side)
            self.consumed(storage, work, outputs, slots)

    def consumed(self, storage, work, outputs, slots):
        """What both consumer warpgroups do after all lists: nothing, where these are whole."""

    @cute.jit
    def keep_sinks(self, storage, work, sink, sunk):
        """Logits of the CTA's rows, in units of log2; nobody has a place else."""
        thread = cute.arch.thread_idx()[0]
        row, kept = work.block * ROWS + thread, self.sinks(storage)
        if thread < ROWS:
            value = -Float32.inf
            if (row < work.heads) & (sunk != 0):
                value = sink[row] * Float32(1.0 / LN_2)
            kept[thread] = value

    def sinks(self, storage):
        """Logits of rows that take weight and give no value: [64]."""
        return storage.sinks.get_tensor(cute.make_layout(ROWS))

    # ---- consumer warpgroups ---------------------------------------------------------------
    def views(self, storage, scale_log2, side):
        """Views of one side, with the highest scores of its tiles."""
        wg = super().views(storage, scale_log2, side)
        return RowsWarpgroup(*wg, highest=cute.make_rmem_tensor(2, Float32))

    @cute.jit
    def consume(
        self, storage, work, q_tensors, scale_log2, outputs, slots, side: cutlass.Constexpr
    ):
        """One warpgroup, from queries to its half of the output, list after list."""
        wg = self.views(storage, scale_log2, side)
        loads = SlabLoads(*q_tensors, shared_slabs(storage.q, self.dtype, SLABS))
        if const_expr(side == Side.LEFT):
            self.ask(storage, loads, work, work.first, False)
            if const_expr(self.rope):
                self.ask(storage, loads, work, work.first, True)
        taken, evens, odds = Int32(0), Int32(0), Int32(0)  # lists and tiles before this one
        for sequence in cutlass.range(work.first, work.count, work.step, unroll=1):
            start, stop = self.span(work, self.length(work, sequence))
            tiles = cutlass.max(stop - start, 1)
            even, odd = (tiles + 1) // 2, tiles // 2
            self.begin_list(wg, storage, taken & 1)
            if const_expr(side == Side.LEFT):
                self.scores(wg, Side.LEFT, 0, True, evens & 1)
                self.scores(wg, Side.LEFT, 1, False, evens & 1)
                warpgroup.wait_group(0)
                for i in cutlass.range(even, unroll=1):
                    self.left_any(
                        wg, (evens + i + 1) & 1, i < odd, i + 1 < even, storage, loads, work,
                        sequence + work.step,
                    )  # fmt: skip
            else:
                for i in cutlass.range(odd, unroll=1):
                    self.right_any(wg, (odds + i) & 1, i + 1 < even)
                if even > odd:
                    self.right_alone(wg)
            self.complete(wg, storage, side)
            if const_expr(self.rope and side == Side.LEFT):
                self.ask(storage, loads, work, sequence + work.step, True)
            first = Int32(0) if even > odd else Int32(SLABS)
            self.results(wg, storage, outputs, slots, work, sequence, first, side)
            # After their last use, as the output's way out.
            if even > odd:
                self.release(wg, Free.EVEN_LEFT + side)
            else:
                self.release(wg, Free.ODD_LEFT + side)
            taken, evens, odds = taken + 1, evens + even, odds + odd

    @cute.jit
    def begin_list(self, wg, storage, phase):
        """Empty sums, and queries, their rotary part in registers."""
        wg.out.fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        wg.highest.fill(LOWEST)
        if const_expr(self.rope):
            cute.arch.mbarrier_wait(storage.q_full.data_ptr() + 1, phase)
            self.take_rope(wg, storage)
        cute.arch.mbarrier_wait(storage.q_full.data_ptr(), phase)

    @cute.jit
    def scores(
        self,
        wg,
        tile: cutlass.Constexpr,
        right: cutlass.Constexpr,
        fresh: cutlass.Constexpr,
        phase,
    ):
        """Issue S += Q K^T over half a tile once it is there, as one commit group."""
        cute.arch.mbarrier_wait(wg.full + (2 * tile + right), phase)
        cute.arch.fence_proxy("async.shared", space="cta")
        warpgroup.fence()
        slabs = self.slabs_of(right)
        for slab in slabs:
            rope = slab == ROPE_SLAB
            mma = score_mma(self.dtype, RMEM if const_expr(rope) else SMEM)
            for step in range_constexpr(4):
                mma.set(warpgroup.Field.ACCUMULATE, not (fresh and slab == slabs[0] and step == 0))
                k = wg.k[None, None, step, tile * SLABS + slab]
                if const_expr(rope):
                    cute.gemm(mma, wg.score, wg.q_rope[None, None, step], k, wg.score)
                else:
                    cute.gemm(mma, wg.score, wg.q[None, None, step, slab], k, wg.score)
        warpgroup.commit_group()

    @cute.jit
    def weigh_side(self, wg, side: cutlass.Constexpr):
        """Scores of the side's tile to weights; the highest one is kept beside the maximum."""
        hide_unfilled(wg, Int32(int(side)))
        for r in range_constexpr(2):
            mine = [4 * j + 2 * r + i for j in range(8) for i in range(2)]  # the row's 16 scores
            top = reduced(cute.arch.fmax, [wg.score[i] for i in mine])
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 1))
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 2))
            old, top = wg.row_max[r], top * wg.scale_log2
            new = raised(old, top, self.lazy)
            wg.highest[r] = cute.arch.fmax(wg.highest[r], top)
            wg.shrink[r] = cute.math.exp2(old - new, fastmath=True)
            wg.row_max[r] = new
            for i in mine:
                wg.score[i] = cute.math.exp2(wg.score[i] * wg.scale_log2 - new, fastmath=True)
            total = reduced(lambda a, b: a + b, [wg.score[i] for i in mine])
            wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r] + total
        round_weights(wg)

    @cute.jit
    def left_any(self, wg, next_phase, paired, more, storage, loads, work, following):
        """An even tile, the odd one after it where there is one, and the scores of the next."""
        self.weigh_side(wg, Side.LEFT)
        publish_max(wg, Side.LEFT)
        arrive(Handover.EVEN_MAX)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.LEFT)
        warpgroup.wait_group(0)
        if paired:  # else it is the output's way out
            self.release(wg, Free.EVEN_LEFT)
        sync(Handover.ODD_MAX)
        # Nobody reads a list's queries after its last scores.
        self.ask(storage, loads, work, work.count if more else following, False)
        if paired:
            adopt_max(wg, Side.RIGHT)
            rescale_weights(wg)
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.EVEN_WEIGHTS)
        if paired:
            sync(Handover.ODD_WEIGHTS)
            rescale(wg.out, wg.shrink)
            accumulate(wg, SMEM, wg.peer_weights, Side.RIGHT)
            if more:
                self.scores(wg, Side.LEFT, 0, True, next_phase)
                warpgroup.wait_group(1)
                self.release(wg, Free.ODD_LEFT)
                self.scores(wg, Side.LEFT, 1, False, next_phase)
            warpgroup.wait_group(0)

    @cute.jit
    def right_any(self, wg, phase, more):
        """The scores of the odd tile, odd weights times own half, then even weights."""
        self.scores(wg, Side.RIGHT, 1, True, phase)
        self.scores(wg, Side.RIGHT, 0, False, phase)
        warpgroup.wait_group(0)
        sync(Handover.EVEN_MAX)
        adopt_max(wg, Side.LEFT)
        even_shrink = (wg.shrink[0], wg.shrink[1])
        self.weigh_side(wg, Side.RIGHT)
        publish_max(wg, Side.RIGHT)
        arrive(Handover.ODD_MAX)
        for r in range_constexpr(2):
            wg.shrink[r] = wg.shrink[r] * even_shrink[r]
        store_weights(wg)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.RIGHT)
        cute.arch.fence_proxy("async.shared", space="cta")
        sync(Handover.EVEN_WEIGHTS)
        accumulate(wg, SMEM, wg.peer_weights, Side.LEFT)
        arrive(Handover.ODD_WEIGHTS)
        warpgroup.wait_group(1)
        if more:  # else it is the output's way out
            self.release(wg, Free.ODD_RIGHT)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_RIGHT)

    # ---- results ---------------------------------------------------------------------------
    @cute.jit
    def complete(self, wg, storage, side: cutlass.Constexpr):
        """Sums of both sides, and the highest of all scores."""
        tops = storage.tops.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1)))
        for r in range_constexpr(2):
            if wg.lane % 4 == 0:
                tops[side, wg.row + 8 * r] = wg.highest[r]
        complete_sums(wg, side)
        for r in range_constexpr(2):
            wg.highest[r] = cute.arch.fmax(wg.highest[r], tops[1 - side, wg.row + 8 * r])

    @cute.jit
    def results(self, wg, storage, outputs, slots, work, sequence, first, side: cutlass.Constexpr):
        """The output of a list, its LSE and highest score; by way of slabs from ``first`` on."""
        for r in range_constexpr(2):
            wg.shrink[r] = self.inverse(storage, wg.row + 8 * r, wg.row_max[r], wg.row_sum[r])
        self.scale_out(wg)
        self.send(wg, storage, outputs, work, sequence, first, side)

    @cute.jit
    def inverse(self, storage, row, top, total):
        """What the output of a row is multiplied by; nothing comes of no token."""
        sunk = cute.math.exp2(self.sinks(storage)[row] - top, fastmath=True)
        return Float32(0.0) if total == 0.0 else Float32(1.0) / (total + sunk)

    @cute.jit
    def scale_out(self, wg):
        """Outputs times ``shrink``."""
        for i in range_constexpr(cute.size(wg.out)):
            wg.out[i] = wg.out[i] * wg.shrink[i // 2 % 2]

    @cute.jit
    def store_lse(self, wg, work, sums, sequence, tops, _):
        """The LSE, and the highest score, of a whole list."""
        for r in range_constexpr(2):
            row = work.block * ROWS + wg.row + 8 * r
            if (row < work.heads) & (wg.lane % 4 == 0):
                self.store_numbers(
                    (sums, tops), sequence, row, wg.row_max[r], wg.row_sum[r], wg.highest[r]
                )

    @cute.jit
    def store_numbers(self, outputs, sequence, row, top, total, highest):
        """LSE and highest score of a row; plus and minus infinity where no token is."""
        sums, tops = outputs
        none = total == 0.0
        value = (top + cute.math.log2(total, fastmath=True)) * Float32(LN_2)
        sums[sequence, row] = Float32.inf if none else value
        tops[sequence, row] = -Float32.inf if none else highest * Float32(LN_2)
