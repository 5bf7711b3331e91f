"""Mainloop steps of per-head attention: a warpgroup's wgmma products and its online softmax."""

from __future__ import annotations

import operator
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.head_items import GROUPS, HeadItems
from mla_var3.kernel.cute_python.kit.head_tiles import (
    ROWS,
    SLAB,
    operand_layout,
    output_mma,
    score_mma,
    shared_slabs,
    value_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import LOWEST, reduced


class Warpgroup(NamedTuple):
    """Views and registers of one consumer warpgroup; vectors of two are its thread's two rows."""

    number: Int32
    q: cute.Tensor  # operand A: [64, 64] x slabs of both warpgroups
    k: cute.Tensor  # operand B: [keys, 64] x slabs of all stages
    v: cute.Tensor  # operand B: [d_v, keys] x stages
    score: cute.Tensor  # [64, keys] fp32 accumulator
    out: cute.Tensor  # [64, d_v] fp32 accumulator
    weights: cute.Tensor  # [64, keys] operand A in registers
    row_max: cute.Tensor  # in units of log2
    row_sum: cute.Tensor  # over the thread's own columns
    shrink: cute.Tensor  # factor that a raised maximum puts on older sums
    limit: cute.Tensor  # one past the last key that its rows see, and that all of the 64 do
    scale_log2: Float32
    row: Int32  # first row of the thread; the second is eight below
    lane: Int32


class HeadSteps(HeadItems):
    """What a main loop is made of; vectors of two are the two rows of a thread."""

    @cute.jit
    def warpgroup(self, storage, scale_log2, number):
        """Views and registers of a warpgroup."""
        shape, dtype = self.shape, self.dtype
        thread = cute.arch.thread_idx()[0] % 128
        lane = thread % 32
        s_q = shared_slabs(storage.q, dtype, ROWS, GROUPS * shape.q_slabs)
        s_k = shared_slabs(storage.k, dtype, shape.keys, shape.stages * shape.q_slabs)
        v_layout = value_layout(dtype, shape.d_v, shape.keys, shape.stages)
        s_v = storage.v.get_tensor(v_layout.outer, swizzle=v_layout.inner)
        score = score_mma(dtype, shape.keys).get_slice(thread)
        out = output_mma(dtype, shape.d_v).get_slice(thread)
        two = cute.make_layout(2)
        return Warpgroup(
            number=number,
            q=score.make_fragment_A(score.partition_A(s_q)),
            k=score.make_fragment_B(score.partition_B(s_k)),
            v=out.make_fragment_B(out.partition_B(s_v)),
            score=score.make_fragment_C(score.partition_shape_C((ROWS, shape.keys))),
            out=out.make_fragment_C(out.partition_shape_C((ROWS, shape.d_v))),
            weights=cute.make_rmem_tensor(operand_layout(shape.keys), dtype),
            row_max=cute.make_rmem_tensor(two, Float32),
            row_sum=cute.make_rmem_tensor(two, Float32),
            shrink=cute.make_rmem_tensor(two, Float32),
            limit=cute.make_rmem_tensor(cute.make_layout(3), Int32),
            scale_log2=scale_log2,
            row=thread // 32 * 16 + lane // 4,
            lane=lane,
        )

    @cute.jit
    def reset(self, wg, work, item):
        """Empty sums, and how far the rows see."""
        wg.out.fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        end = cutlass.min((item.first + item.tiles) * self.shape.keys, work.keys)
        wg.limit.fill(end)
        if const_expr(self.shape.causal):
            first = (item.pair * GROUPS + wg.number) * ROWS + (work.keys - work.queries + 1)
            wg.limit[0] = cutlass.min(first + wg.row, end)
            wg.limit[1] = cutlass.min(first + wg.row + 8, end)
            wg.limit[2] = cutlass.min(first, end)

    @cute.jit
    def scores(self, wg, storage, place):
        """Issue S = Q K^T once the keys have landed, as one commit group."""
        stages, slabs = self.shape.stages, self.shape.q_slabs
        stage = cute.arch.make_warp_uniform(place % stages)
        cute.arch.mbarrier_wait(storage.k_full.data_ptr() + stage, place // stages & 1)
        mma = score_mma(self.dtype, self.shape.keys)
        warpgroup.fence()
        for slab in range_constexpr(slabs):
            for step in range_constexpr(SLAB // 16):
                mma.set(warpgroup.Field.ACCUMULATE, slab + step > 0)
                q = wg.q[None, None, step, wg.number * slabs + slab]
                k = wg.k[None, None, step, stage * slabs + slab]
                cute.gemm(mma, wg.score, q, k, wg.score)
        warpgroup.commit_group()

    @cute.jit
    def accumulate(self, wg, storage, place):
        """Issue O += P V once the values have landed, as one commit group."""
        stages = self.shape.stages
        stage = cute.arch.make_warp_uniform(place % stages)
        cute.arch.mbarrier_wait(storage.v_full.data_ptr() + stage, place // stages & 1)
        mma = output_mma(self.dtype, self.shape.d_v)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.fence()
        for step in range_constexpr(self.shape.keys // 16):
            v = wg.v[None, None, step, stage]
            cute.gemm(mma, wg.out, wg.weights[None, None, step], v, wg.out)
        warpgroup.commit_group()

    @cute.jit
    def softmax(self, wg, tile):
        """Scores to weights under a running maximum; ``shrink`` is what older sums are worth."""
        keys = self.shape.keys
        if (tile + 1) * keys > wg.limit[2]:
            self.mask(wg, tile * keys)
        for r in range_constexpr(2):
            mine = [4 * j + 2 * r + i for j in range(keys // 8) for i in range(2)]
            top = reduced(cute.arch.fmax, [wg.score[i] for i in mine])
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 1))
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 2))
            new = cute.arch.fmax(wg.row_max[r], top * wg.scale_log2)
            wg.shrink[r] = cute.math.exp2(wg.row_max[r] - new, fastmath=True)
            wg.row_max[r] = new
            for i in mine:
                wg.score[i] = cute.math.exp2(wg.score[i] * wg.scale_log2 - new, fastmath=True)
            total = reduced(operator.add, [wg.score[i] for i in mine])
            wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r] + total

    @cute.jit
    def mask(self, wg, first):
        """Hide the keys that a row does not see, in a tile that begins with key ``first``."""
        for i in range_constexpr(cute.size(wg.score)):
            key = first + 8 * (i // 4) + 2 * (wg.lane % 4) + i % 2
            hidden = key >= wg.limit[i // 2 % 2]
            wg.score[i] = -Float32.inf if hidden else wg.score[i]

    @cute.jit
    def round_weights(self, wg):
        """Weights in the element type, as the A operand."""
        flat = cute.make_tensor(wg.weights.iterator, wg.score.layout)
        flat.store(wg.score.load().to(self.dtype))

    @cute.jit
    def rescale(self, wg):
        """What older sums are worth under the raised maximum."""
        for i in range_constexpr(cute.size(wg.out)):
            wg.out[i] = wg.out[i] * wg.shrink[i // 2 % 2]

    @cute.jit
    def release(self, free, place):
        """A warp has read a place of a ring."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(free.data_ptr() + place % self.shape.stages)
