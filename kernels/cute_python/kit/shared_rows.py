"""Per-head attention kernel for few queries: two warpgroups share a row tile, split its keys."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import warp, warpgroup
from cutlass.utils import hopper_helpers

from mla_var3.kernel.cute_python.kit.head_items import GROUPS, Shape
from mla_var3.kernel.cute_python.kit.head_kernel import CONSUMERS
from mla_var3.kernel.cute_python.kit.head_tiles import (
    RMEM,
    ROWS,
    SLAB,
    operand_layout,
    row_parts,
    shared_slabs,
)
from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel
from mla_var3.kernel.cute_python.kit.turns import TURN

#: Rows of a warp.
WARP_ROWS = ROWS // 4
#: Named barrier of both consumer warpgroups.
MEET = TURN + GROUPS


def handed_values(width):
    """Numbers that one warpgroup hands to the other: of a thread two maxima, two sums, output."""
    return 128 * 4 + ROWS * width


def query_mma(dtype, keys):
    """Scores [64, keys] of a warpgroup: queries from registers, keys K-major."""
    k_major = warpgroup.OperandMajorMode.K
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, Float32, (1, 1, 1), (ROWS, keys), RMEM
    )


class SharedRowsKernel(RopeKernel):
    """One tile of queries, in registers of both warpgroups, which take alternate steps of keys.

    The merge is within the block: the second warpgroup leaves maxima, sums and output in shared
    memory, and the first adds them to its own.
    """

    def __init__(self, shape: Shape, blocks: int | None = None, *, warps: int = 4):
        super().__init__(shape, blocks)
        self.warps = warps  # of a warpgroup, that have a row

    @cute.jit
    def prepare(self, queries, keys, value, outputs):
        """As for rows of their own, with one tile of queries and a place to hand over."""
        operands = RopeKernel.prepare(self, queries, keys, value, outputs)
        shape, dtype = self.shape, self.dtype

        @cute.struct
        class Storage:
            q_full: cute.struct.MemRange[cutlass.Int64, GROUPS]
            q_free: cute.struct.MemRange[cutlass.Int64, GROUPS]
            k_full: cute.struct.MemRange[cutlass.Int64, shape.stages]
            k_free: cute.struct.MemRange[cutlass.Int64, shape.stages]
            v_full: cute.struct.MemRange[cutlass.Int64, shape.stages]
            v_free: cute.struct.MemRange[cutlass.Int64, shape.stages]
            q: cute.struct.Align[cute.struct.MemRange[dtype, ROWS * shape.d_qk], 1024]
            k: cute.struct.Align[
                cute.struct.MemRange[dtype, shape.stages * shape.keys * shape.d_qk], 1024
            ]
            v: cute.struct.Align[
                cute.struct.MemRange[dtype, shape.stages * shape.keys * shape.d_v], 1024
            ]
            handed: cute.struct.Align[cute.struct.MemRange[Float32, handed_values(shape.d_v)], 1024]

        self.storage = Storage
        return operands

    # ---- items -----------------------------------------------------------------------------
    def work(self, o, value):
        """Extents: both warpgroups have one output."""
        return super().work(o, value)._replace(splits=Int32(1))

    def output_of(self, work, item, number):
        return item.group

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce_queries(self, storage, work, q_loads):
        """One warp: the one tile of every item."""
        slabs, count = self.shape.q_slabs, self.items(work)[1]
        s_q = shared_slabs(storage.q, self.dtype, ROWS, slabs)
        full, free = storage.q_full.data_ptr(), storage.q_free.data_ptr()
        sources = self.sources(q_loads, row_parts, s_q, self.shape.tile_s)
        taken = Int32(0)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            tile_s, tile_m = self.rows_of(work, item, 0)
            cute.arch.mbarrier_wait(free, (taken & 1) ^ 1)
            self.expect(full, ROWS * self.shape.d_qk)
            for slab in range_constexpr(slabs):
                atom, shared, source, inner = sources[slab]
                cute.copy(
                    atom,
                    source[None, tile_s, tile_m, inner, item.head, item.group],
                    shared[None, slab],
                    tma_bar_ptr=full,
                )
            taken = taken + 1

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, operands, scale_log2, number):
        """One warpgroup: every other step of every item."""
        _, _, v_load, o_store, lse = operands
        work = self.work(o_store[1], v_load[1])
        count = self.items(work)[1]
        wg = self.warpgroup(storage, scale_log2, number)
        taken, done = Int32(0), Int32(0)  # items and places in the rings before this item
        self.enter(wg)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            steps = self.steps(item)
            self.reset(wg, work, item)
            cute.arch.mbarrier_wait(storage.q_full.data_ptr(), taken & 1)
            self.take_queries(wg, storage)
            self.attend(wg, storage, item, steps // self.shape.parts, done)
            self.finish(wg, storage, work, item, o_store, lse)
            taken, done = taken + 1, done + steps
        self.leave(wg)

    def warpgroup(self, storage, scale_log2, number):
        """Views and registers of a warpgroup; those of the queries are its own."""
        wg = super().warpgroup(storage, scale_log2, number)
        wg.weights.fill(0.0)  # for good, in a warp without a row
        return wg._replace(q=cute.make_rmem_tensor(operand_layout(self.shape.d_qk), self.dtype))

    @cute.jit
    def reset(self, wg, work, item):
        """Empty sums, and how far the rows see, which are those of the first warpgroup."""
        RopeKernel.reset(self, wg._replace(number=Int32(0)), work, item)
        wg.shrink.fill(1.0)

    @cute.jit
    def take_queries(self, wg, storage):
        """The tile of queries into registers, where it serves all steps."""
        slabs = self.shape.q_slabs
        s_q = shared_slabs(storage.q, self.dtype, ROWS, slabs)
        ldmatrix = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), self.dtype)
        copy = cute.make_tiled_copy_A(ldmatrix, query_mma(self.dtype, self.shape.keys))
        mine = copy.get_slice(cute.arch.thread_idx()[0] % 128)
        for slab in range_constexpr(slabs):
            part = cute.make_tensor(wg.q.iterator + slab * 32, operand_layout(SLAB))
            cute.copy(copy, mine.partition_S(s_q[None, None, slab]), mine.retile(part))

    # ---- steps of a main loop --------------------------------------------------------------
    @cute.jit
    def scores(self, wg, storage, place):
        """Issue S = Q K^T once the keys have landed, as one commit group."""
        stages, slabs = self.shape.stages, self.shape.q_slabs
        stage = cute.arch.make_warp_uniform(place % stages)
        cute.arch.mbarrier_wait(storage.k_full.data_ptr() + stage, place // stages & 1)
        mma = query_mma(self.dtype, self.shape.keys)
        warpgroup.fence()
        for slab in range_constexpr(slabs):
            for step in range_constexpr(SLAB // 16):
                mma.set(warpgroup.Field.ACCUMULATE, slab + step > 0)
                q = wg.q[None, None, slab * (SLAB // 16) + step]
                k = wg.k[None, None, step, stage * slabs + slab]
                cute.gemm(mma, wg.score, q, k, wg.score)
        warpgroup.commit_group()

    @cute.jit
    def softmax(self, wg, tile):
        """As for rows of their own; a warp without a row has none to do."""
        if wg.row < self.warps * WARP_ROWS:
            RopeKernel.softmax(self, wg, tile)

    @cute.jit
    def round_weights(self, wg):
        """Likewise."""
        if wg.row < self.warps * WARP_ROWS:
            RopeKernel.round_weights(self, wg)

    @cute.jit
    def rescale(self, wg):
        """What older sums are worth, where a row of the warp has moved."""
        moved = (wg.shrink[0] != Float32(1.0)) | (wg.shrink[1] != Float32(1.0))
        if cute.arch.vote_any_sync(moved):
            RopeKernel.rescale(self, wg)

    # ---- end of an item --------------------------------------------------------------------
    @cute.jit
    def finish(self, wg, storage, work, item, o_store, lse):
        """The second warpgroup hands over, the first merges and stores.

        What was handed over is read before the queries' place comes free, and the second
        warpgroup's next item begins with what lands there: it cannot write too early.
        """
        if wg.number == 1:
            self.hand_over(wg, storage)
            cute.arch.barrier_arrive(barrier_id=MEET, number_of_threads=CONSUMERS)
        else:
            cute.arch.barrier(barrier_id=MEET, number_of_threads=CONSUMERS)
            self.take_over(wg, storage)
            RopeKernel.finish(self, wg, storage, work, item, o_store, lse)

    def handed(self, storage):
        """What is handed over of the own thread's rows: [4, 1 + outputs / 4]."""
        quads = handed_values(self.shape.d_v) // (4 * 128)
        layout = cute.make_layout((4, quads, 128), stride=(1, 4 * 128, 4))
        return storage.handed.get_tensor(layout)[None, None, cute.arch.thread_idx()[0] % 128]

    @cute.jit
    def hand_over(self, wg, storage):
        """Leave maxima, sums and output."""
        handed, quad = self.handed(storage), cute.make_rmem_tensor(4, Float32)
        for r in range_constexpr(2):
            quad[r], quad[2 + r] = wg.row_max[r], wg.row_sum[r]
        cute.autovec_copy(quad, handed[None, 0])
        for j in range_constexpr(cute.size(wg.out) // 4):
            for i in range_constexpr(4):
                quad[i] = wg.out[4 * j + i]
            cute.autovec_copy(quad, handed[None, 1 + j])

    @cute.jit
    def take_over(self, wg, storage):
        """Merge what the other warpgroup has left into the own sums and output."""
        handed, quad = self.handed(storage), cute.make_rmem_tensor(4, Float32)
        mine, theirs = cute.make_rmem_tensor_like(wg.shrink), cute.make_rmem_tensor_like(wg.shrink)
        cute.autovec_copy(handed[None, 0], quad)
        for r in range_constexpr(2):
            new = cute.arch.fmax(wg.row_max[r], quad[r])
            mine[r] = cute.math.exp2(wg.row_max[r] - new, fastmath=True)
            theirs[r] = cute.math.exp2(quad[r] - new, fastmath=True)
            wg.row_sum[r] = wg.row_sum[r] * mine[r] + quad[2 + r] * theirs[r]
            wg.row_max[r] = new
        for j in range_constexpr(cute.size(wg.out) // 4):
            cute.autovec_copy(handed[None, 1 + j], quad)
            for i in range_constexpr(4):
                r = i // 2
                wg.out[4 * j + i] = wg.out[4 * j + i] * mine[r] + quad[i] * theirs[r]
