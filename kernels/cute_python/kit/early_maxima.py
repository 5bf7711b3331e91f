"""Warpgroups that publish a maximum before they make weights under it.

In each pair of tiles right's maximum builds on left's, and left's last weights on right's. So what
one warpgroup computes between the two, the other waits for. Here that is the maximum alone.
"""

from __future__ import annotations

import operator

import cutlass
import cutlass.cute as cute
from cutlass import range_constexpr
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.handovers import Handover, arrive, sync
from mla_var3.kernel.cute_python.kit.products import RMEM, SMEM, accumulate, scores
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import KEYS
from mla_var3.kernel.cute_python.kit.softmax import (
    adopt_max,
    publish_max,
    raised,
    reduced,
    rescale,
    rescale_weights,
    round_weights,
    store_weights,
)
from mla_var3.kernel.cute_python.kit.warpgroups import EVEN_ORDER, ODD_ORDER, Side


def row_scores(r):
    """Which of a thread's scores are its row's: 16 of them."""
    return [4 * j + 2 * r + i for j in range(8) for i in range(2)]


@cute.jit
def raise_max(wg, tile, lazy: cutlass.Constexpr, hide: cutlass.Constexpr):
    """The first half of ``softmax``: the running maximum, and what it makes older sums worth."""
    if (tile + 1) * KEYS > wg.limit[2]:
        hide(wg, tile)
    for r in range_constexpr(2):
        top = reduced(cute.arch.fmax, [wg.score[i] for i in row_scores(r)])
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 1))
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 2))
        old = wg.row_max[r]
        new = raised(old, top * wg.scale_log2, lazy)
        wg.shrink[r] = cute.math.exp2(old - new, fastmath=True)
        wg.row_max[r] = new


@cute.jit
def make_weights(wg):
    """The second half of ``softmax``: weights under the running maximum, and their sums."""
    for r in range_constexpr(2):
        new = wg.row_max[r]
        for i in row_scores(r):
            wg.score[i] = cute.math.exp2(wg.score[i] * wg.scale_log2 - new, fastmath=True)
        total = reduced(operator.add, [wg.score[i] for i in row_scores(r)])
        wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r] + total
    round_weights(wg)


class EarlyMaxima:
    """Consumer warpgroups of ``ShortKernel`` in this order."""

    @cute.jit
    def left_any(self, wg, i, next_phase, paired, more):
        """An even tile, the odd one after it where there is one, and the scores of the next."""
        raise_max(wg, 2 * i, self.lazy, self.hide)
        publish_max(wg, Side.LEFT)
        arrive(Handover.EVEN_MAX)
        make_weights(wg)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.LEFT)
        warpgroup.wait_group(0)
        if paired:  # else it is the output's way out
            self.release(wg, Free.EVEN_LEFT)
        sync(Handover.ODD_MAX)
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
                scores(wg, Side.LEFT, EVEN_ORDER[:4], True, next_phase)
                warpgroup.wait_group(4)
                self.release(wg, Free.ODD_LEFT)
                scores(wg, Side.LEFT, EVEN_ORDER[4:], False, next_phase)
            warpgroup.wait_group(0)
            if more:
                self.release(wg, Free.EVEN_ROPE)

    @cute.jit
    def right_pair(self, wg, i, phase, more):
        """The scores of the odd tile, odd weights times own half, then even weights."""
        scores(wg, Side.RIGHT, ODD_ORDER, True, phase)
        warpgroup.wait_group(0)
        self.release(wg, Free.ODD_ROPE)
        self.epilogue.offer_last(more)
        sync(Handover.EVEN_MAX)
        adopt_max(wg, Side.LEFT)
        even_shrink = (wg.shrink[0], wg.shrink[1])
        raise_max(wg, 2 * i + 1, self.lazy, self.hide)
        publish_max(wg, Side.RIGHT)
        arrive(Handover.ODD_MAX)
        make_weights(wg)
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
        self.release_odd(wg, more)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_RIGHT)
