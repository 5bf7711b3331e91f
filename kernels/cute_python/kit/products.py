"""wgmma products of latent attention: S = Q K^T slab by slab, and O += P V."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, const_expr, range_constexpr
from cutlass.cute.nvgpu import warpgroup
from cutlass.utils import hopper_helpers

from mla_var3.kernel.cute_python.kit.slabs import HALF, KEYS, ROPE_SLAB, ROWS, SLABS

SMEM, RMEM = warpgroup.OperandSource.SMEM, warpgroup.OperandSource.RMEM


def score_mma(dtype, source):
    """Scores [64, 64] of a warpgroup: Q and K both K-major; Q from ``source``."""
    k_major = warpgroup.OperandMajorMode.K
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, Float32, (1, 1, 1), (ROWS, KEYS), source
    )


def output_mma(dtype, source):
    """Output [64, 256] of a warpgroup: weights from ``source``, the latent tile MN-major."""
    k_major, mn_major = warpgroup.OperandMajorMode.K, warpgroup.OperandMajorMode.MN
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, mn_major, Float32, (1, 1, 1), (ROWS, HALF), source
    )


@cute.jit
def scores(wg, tile, order: cutlass.Constexpr, fresh: cutlass.Constexpr, phase, queries=None):
    """Issue S += Q K^T over some slabs as each one lands; one commit group per slab.

    The first of an item also waits for ``queries``, by barriers and their phase.
    """
    for j in range_constexpr(len(order)):
        slab = order[j]
        if const_expr(queries is not None):
            cute.arch.mbarrier_wait(queries[0] + slab, queries[1])
        cute.arch.mbarrier_wait(wg.full + (tile * SLABS + slab), phase)
        warpgroup.fence()
        mma = score_mma(wg.weights.element_type, RMEM if const_expr(slab == ROPE_SLAB) else SMEM)
        for step in range_constexpr(4):
            mma.set(warpgroup.Field.ACCUMULATE, not (fresh and j == 0 and step == 0))
            k = wg.k[None, None, step, tile * SLABS + slab]
            if const_expr(slab == ROPE_SLAB):
                cute.gemm(mma, wg.score, wg.q_rope[None, None, step], k, wg.score)
            else:
                cute.gemm(mma, wg.score, wg.q[None, None, step, slab], k, wg.score)
        warpgroup.commit_group()


@cute.jit
def accumulate(wg, source: cutlass.Constexpr, weights, tile: cutlass.Constexpr):
    """Issue O += P V of one tile, as one commit group."""
    mma = output_mma(wg.weights.element_type, source)
    mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.fence()
    for step in range_constexpr(4):
        v = wg.v[tile][None, None, step]
        cute.gemm(mma, wg.out, weights[None, None, step], v, wg.out)
    warpgroup.commit_group()
