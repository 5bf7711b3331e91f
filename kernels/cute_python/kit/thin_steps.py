"""Mainloop of few-row attention, operands swapped: S^T = K Q^T, softmax, O^T = V^T P^T.

The same bytes of the cache are keys, and read transposed values. Each of two warpgroups owns whole
tiles of keys and a whole output, so they hand nothing over until the end.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import warp, warpgroup
from cutlass.utils import hopper_helpers

from mla_var3.kernel.cute_python.kit.masks import seen, seen_by_all
from mla_var3.kernel.cute_python.kit.slabs import KEYS, ROPE_SLAB, SLAB, SLABS, slab_layout
from mla_var3.kernel.cute_python.kit.softmax import LOWEST, reduced
from mla_var3.kernel.cute_python.kit.thin_slabs import BLOCKS, GROUPS, ORDER, OWN, thin_slabs


class Warpgroup(NamedTuple):
    """Views and registers of one consumer warpgroup; vectors hold its thread's columns."""

    full: cute.Pointer  # barriers of the slot's slabs
    free: cute.Pointer
    k: cute.Tensor  # operand A: [64 keys, 64] x 9 slabs of the slot
    q: cute.Tensor  # operand B: [columns, 64] x 9 slabs
    v: cute.Tensor  # operand A: [64, 64 keys] x 9 slabs, the same bytes as k
    p: cute.Tensor  # operand B: [columns, 64 keys]
    weights: cute.Tensor  # where the weights go, as [64 keys, columns]
    store: cute.TiledCopy  # registers to shared memory by stmatrix
    store_thread: cute.ThrCopy
    by_warp: cute.Tensor  # shared [4 warps, columns]: maxima, then sums
    score: cute.Tensor  # [64 keys, columns] fp32 accumulator
    out: tuple[cute.Tensor, ...]  # 8 x [64, columns] fp32 accumulators
    top: cute.Tensor
    row_max: cute.Tensor  # in units of log2
    row_sum: cute.Tensor  # over the thread's own keys
    shrink: cute.Tensor  # factor that a raised maximum puts on older sums
    limit: cute.Tensor  # one past the last key that its rows see, and that all rows do
    scale_log2: Float32
    thread: Int32
    warp: Int32
    lane: Int32


def transposed_layout(dtype, slabs):
    """Slabs of keys read as values: [64, 64 keys, slabs], MN-major."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, dtype)
    return cute.tile_to_shape(atom, (SLAB, KEYS, slabs), order=(0, 1, 2))


class ThinSteps:
    """What a warpgroup does with a tile, and how it is set up."""

    @cute.jit
    def warpgroup(self, storage, scale_log2, group: cutlass.Constexpr):
        """Views and registers of one warpgroup."""
        thread, n = cute.arch.thread_idx()[0] % 128, self.columns
        s_q = thin_slabs(storage.q, self.dtype, n, SLABS)
        s_p = thin_slabs(storage.weights, self.dtype, n, GROUPS)[None, None, group]
        full, free, s_k, s_v = self.tiles(storage, group)
        score, out = self.score_mma(), self.output_mma()
        in_score, in_out = score.get_slice(thread), out.get_slice(thread)
        matrices = cute.make_copy_atom(warp.StMatrix8x8x16bOp(True, min(n // 4, 4)), self.dtype)
        store = cute.make_tiled_copy_C(matrices, score)
        own = cute.make_tensor(s_p.iterator, cute.select(s_p.layout, mode=[1, 0]))
        vector = cute.make_layout(self.mine)
        by_warp = storage.by_warp.get_tensor(cute.make_layout((4, n, GROUPS), stride=(n, 1, 4 * n)))
        return Warpgroup(
            full=full,
            free=free,
            k=in_score.make_fragment_A(in_score.partition_A(s_k)),
            q=in_score.make_fragment_B(in_score.partition_B(s_q)),
            v=in_out.make_fragment_A(in_out.partition_A(s_v)),
            p=in_out.make_fragment_B(in_out.partition_B(s_p)),
            weights=store.get_slice(thread).partition_D(own),
            store=store,
            store_thread=store.get_slice(thread),
            by_warp=by_warp[None, None, group],
            score=in_score.make_fragment_C(in_score.partition_shape_C((KEYS, n))),
            out=tuple(
                in_out.make_fragment_C(in_out.partition_shape_C((SLAB, n))) for _ in range(BLOCKS)
            ),
            top=cute.make_rmem_tensor(vector, Float32),
            row_max=cute.make_rmem_tensor(vector, Float32),
            row_sum=cute.make_rmem_tensor(vector, Float32),
            shrink=cute.make_rmem_tensor(vector, Float32),
            limit=cute.make_rmem_tensor(cute.make_layout(self.mine + 1), Int32),
            scale_log2=scale_log2,
            thread=thread,
            warp=thread // 32,
            lane=thread % 32,
        )

    def tiles(self, storage, group):
        """Barriers and shared memory of a warpgroup's tiles: one slot, as keys and as values."""
        return (
            storage.full.data_ptr() + group * SLABS,
            storage.free.data_ptr() + group * SLABS,
            self.slot(storage, slab_layout(self.dtype, SLABS), group),
            self.slot(storage, transposed_layout(self.dtype, SLABS), group),
        )

    def slot(self, storage, layout, group):
        """The slabs of a warpgroup's tile, in one of two layouts of the same bytes."""
        start = storage.kv.data_ptr() + group * SLABS * SLAB * SLAB
        return cute.make_tensor(cute.recast_ptr(start, layout.inner, self.dtype), layout.outer)

    @cute.jit
    def start(self, wg, work, first_row):
        """Empty sums, and the keys that the thread's rows see."""
        queries, keys = work[1], work[2]
        for block in range_constexpr(BLOCKS):
            wg.out[block].fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        for c in range_constexpr(self.mine):
            wg.limit[c] = seen(first_row + self.column(wg, c), queries, keys, self.causal)
        wg.limit[self.mine] = seen_by_all(first_row, queries, keys, self.causal)

    # ---- a tile ----------------------------------------------------------------------------
    @cute.jit
    def scores(self, wg, phase):
        """S = K Q^T, slab by slab as each one lands."""
        mma = self.score_mma()
        for j in range_constexpr(SLABS):
            slab = ORDER[j]
            cute.arch.mbarrier_wait(wg.full + slab, phase)
            warpgroup.fence()
            for step in range_constexpr(4):
                mma.set(warpgroup.Field.ACCUMULATE, j != 0 or step != 0)
                k, q = wg.k[None, None, step, slab], wg.q[None, None, step, slab]
                cute.gemm(mma, wg.score, k, q, wg.score)
            warpgroup.commit_group()
        warpgroup.wait_group(0)
        self.release(wg, ROPE_SLAB)

    @cute.jit
    def accumulate(self, wg):
        """O += V^T P^T, a block of 64 dimensions per slab, each given back when it is done."""
        mma = self.output_mma()
        mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.fence()
        for slab in range_constexpr(BLOCKS):
            for step in range_constexpr(4):
                v, p = wg.v[None, None, step, slab], wg.p[None, None, step]
                cute.gemm(mma, wg.out[slab], v, p, wg.out[slab])
            warpgroup.commit_group()
        for slab in range_constexpr(BLOCKS):
            warpgroup.wait_group(BLOCKS - 1 - slab)
            self.release(wg, slab)

    @cute.jit
    def softmax(self, wg, tile, group: cutlass.Constexpr):
        """Scores to weights under a running maximum, and what older sums are worth under it."""
        if (tile + 1) * KEYS > wg.limit[self.mine]:
            self.mask(wg, tile)
        for c in range_constexpr(self.mine):
            upper, lower = self.places(c)
            wg.top[c] = cute.arch.fmax(wg.score[upper], wg.score[lower])
        self.over_keys(wg, wg.top, cute.arch.fmax, group)
        for c in range_constexpr(self.mine):
            old = wg.row_max[c]
            new = cute.arch.fmax(old, wg.top[c] * wg.scale_log2)
            wg.shrink[c] = cute.math.exp2(old - new, fastmath=True)
            wg.row_max[c] = new
            wg.row_sum[c] = wg.row_sum[c] * wg.shrink[c]
            for i in self.places(c):
                weight = cute.math.exp2(wg.score[i] * wg.scale_log2 - new, fastmath=True)
                wg.score[i] = weight
                wg.row_sum[c] = wg.row_sum[c] + weight
        rounded = cute.make_rmem_tensor(wg.score.layout, self.dtype)
        rounded.store(wg.score.load().to(self.dtype))
        cute.copy(wg.store, wg.store_thread.retile(rounded), wg.weights)
        cute.arch.fence_proxy("async.shared", space="cta")
        self.rescale(wg)
        self.meet(OWN + group, 128)

    def places(self, c):
        """Where a thread's two scores of its column ``c`` are, eight keys apart."""
        return 4 * (c // 2) + c % 2, 4 * (c // 2) + c % 2 + 2

    def column(self, wg, c):
        """The column that a thread's ``c``-th is."""
        return 8 * (c // 2) + 2 * (wg.lane % 4) + c % 2

    @cute.jit
    def over_keys(self, wg, values, combine: cutlass.Constexpr, group: cutlass.Constexpr):
        """Combine the threads' values of each column over all keys of the warpgroup."""
        for c in range_constexpr(self.mine):
            for distance in (4, 8, 16):
                other = cute.arch.shuffle_sync_bfly(values[c], distance)
                values[c] = combine(values[c], other)
            if wg.lane < 4:
                wg.by_warp[wg.warp, self.column(wg, c)] = values[c]
        self.meet(OWN + group, 128)
        for c in range_constexpr(self.mine):
            column = self.column(wg, c)
            values[c] = reduced(combine, [wg.by_warp[w, column] for w in range(4)])

    @cute.jit
    def mask(self, wg, tile):
        """Hide the keys that a row does not see."""
        for c in range_constexpr(self.mine):
            for r in range_constexpr(2):
                key = tile * KEYS + 16 * wg.warp + wg.lane // 4 + 8 * r
                i = self.places(c)[r]
                wg.score[i] = -Float32.inf if key >= wg.limit[c] else wg.score[i]

    @cute.jit
    def rescale(self, wg):
        """Bring the output under the new maximum; skipped where no column has moved."""
        moved = reduced(operator.mul, [wg.shrink[c] for c in range(self.mine)])
        if cute.arch.vote_any_sync(moved != Float32(1.0)):
            self.multiply(wg, wg.shrink)

    @cute.jit
    def multiply(self, wg, factors):
        for block in range_constexpr(BLOCKS):
            for c in range_constexpr(self.mine):
                for i in self.places(c):
                    wg.out[block][i] = wg.out[block][i] * factors[c]

    @cute.jit
    def release(self, wg, slab: cutlass.Constexpr):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(wg.free + slab)

    @cute.jit
    def meet(self, barrier: cutlass.Constexpr, threads: cutlass.Constexpr):
        cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)

    def quad(self, wg, block, j):
        """Four values of a block of the output: two dimensions of two columns."""
        return cute.make_tensor(wg.out[block].iterator + 4 * j, cute.make_layout(4))

    # ---- products --------------------------------------------------------------------------
    def score_mma(self):
        """Scores [64 keys, columns]: K and Q both K-major."""
        k_major = warpgroup.OperandMajorMode.K
        return self.mma(k_major, k_major)

    def output_mma(self):
        """Output [64 dimensions, columns]: the latent slab MN-major, weights K-major."""
        return self.mma(warpgroup.OperandMajorMode.MN, warpgroup.OperandMajorMode.K)

    def mma(self, a_major, b_major):
        return hopper_helpers.make_trivial_tiled_mma(
            self.dtype, self.dtype, a_major, b_major, Float32, (1, 1, 1), (SLAB, self.columns)
        )
