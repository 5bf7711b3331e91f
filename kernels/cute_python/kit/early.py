"""Consumers that hand weights over as soon as they are made, and loads that follow what is told of.

In ``resident`` the left warpgroup keeps an even tile's weights until it knows the maximum after the
odd tile, and so the right half of the even tile comes free only when the odd tile is done. Under a
maximum that lags there is little to wait for: weights go to shared memory at once, and who takes
them over rescales its sums where the maximum has moved. The right side adds the even tile between
the two halves of the odd tile's scores.

A piece's registers are those of the stores that it is converted into. So its successor cannot be
sent for before these stores have left the queue of the memory pipe, and where it is sent for at
once, the warp waits. Here a group of slabs is fenced and told of first.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import const_expr, range_constexpr
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.handovers import Handover, arrive, sync
from mla_var3.kernel.cute_python.kit.products import RMEM, SMEM, accumulate
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import SLABS
from mla_var3.kernel.cute_python.kit.softmax import (
    adopt_max,
    publish_max,
    rescale,
    store_weights,
)
from mla_var3.kernel.cute_python.kit.warpgroups import Side
from mla_var3.kernel.cute_python.kit.window import WindowKernel


class EarlyKernel(WindowKernel):
    """Host and device half; producers fence what they have written."""

    ahead, fenced = False, ()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def convert_tile(self, storage, window, work, caches, where, group):
        """A warp's tokens to fp16; of the next tile's a piece follows once its slab is told of."""
        odd, phase, next_odd, next_phase, more = where
        free = storage.free.data_ptr()
        full, filled = storage.full.data_ptr() + odd * SLABS, window.filled[0]
        cute.arch.mbarrier_wait(free + 3 * odd, phase)
        self.pack(window)
        factors = self.factors(window.scales, odd)
        self.mark_filled(storage, filled, odd, group)
        for j in range_constexpr(self.values):
            if const_expr(j == self.near):
                cute.arch.mbarrier_wait(free + 1 + odd, phase)
            for i in range_constexpr(2):
                self.convert(storage, window, factors, filled, odd, group, 2 * j + i)
                if const_expr(j + i == 0):
                    # All that is under way has come; what is read from here on has a tile's time.
                    self.begin_next(window, work, caches, group)
            for told in self.told[:-1]:
                if const_expr(j == told[-1]):
                    self.tell_of(full, odd, told)
                    self.fetch_slabs(window, told, next_odd)
        cute.arch.cp_async_wait_group(0)
        self.put_rope(storage, filled, odd, group)
        self.tell_of(full, odd, self.told[-1])
        self.fetch_slabs(window, self.told[-1], next_odd)
        if more:
            self.await_rope(free, next_odd, next_phase)
            self.fetch_rope(storage, window, next_odd, group)

    @cute.jit
    def fetch_slabs(self, window, told: cutlass.Constexpr, odd):
        """Begin to read the values of some slabs."""
        for j in told:
            if const_expr(j < self.values):
                for i in range_constexpr(2):
                    self.fetch(window, 2 * j + i, odd)

    # ---- left warpgroup --------------------------------------------------------------------
    @cute.jit
    def left_any(self, wg, i, next_phase, paired, more):
        """An even tile, the odd one after it where there is one, and the scores of the next."""
        self.weigh(wg, 2 * i)
        publish_max(wg, Side.LEFT)
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.EVEN_WEIGHTS)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.LEFT)
        warpgroup.wait_group(0)
        if paired:  # else it is the output's way out
            self.release(wg, Free.EVEN_LEFT)
            sync(Handover.ODD_WEIGHTS)
            adopt_max(wg, Side.RIGHT)
            rescale(wg.out, wg.shrink)
            accumulate(wg, SMEM, wg.peer_weights, Side.RIGHT)
            if more:
                self.scores(wg, Side.LEFT, self.orders[0][: self.near], True, next_phase, None)
                warpgroup.wait_group(self.near)
                self.release(wg, Free.ODD_LEFT)
                self.release(wg, Free.ODD_ROPE)
                self.scores(wg, Side.LEFT, self.orders[0][self.near :], False, next_phase, None)
                warpgroup.wait_group(0)
            else:
                warpgroup.wait_group(0)
                self.release(wg, Free.ODD_ROPE)
                wg.score.fill(0.0)  # else old ones would be kept for a tile that does not come
        else:
            wg.score.fill(0.0)
        if more:
            self.release(wg, Free.EVEN_ROPE)

    # ---- right warpgroup -------------------------------------------------------------------
    @cute.jit
    def right_tiles(self, wg, even, odd, odds):
        """Weights of the odd tiles, columns 256 to 511 of the output."""
        if odd == 0:
            self.release(wg, Free.Q)
        for i in cutlass.range(odd, unroll=1):
            self.right_any(wg, i, (odds + i) & 1, i + 1 < even, i + 1 == odd)
        if even > odd:
            self.right_alone(wg)

    @cute.jit
    def right_any(self, wg, i, phase, more, last):
        """Scores of the odd tile, and between their halves the even one; then the odd one."""
        self.scores(wg, Side.RIGHT, self.orders[1][: self.near], True, phase, None)
        self.right_alone(wg)
        self.release(wg, Free.EVEN_RIGHT)
        self.scores(wg, Side.RIGHT, self.orders[1][self.near :], False, phase, None)
        warpgroup.wait_group(0)
        if last:
            self.release(wg, Free.Q)
        self.weigh(wg, 2 * i + 1)
        publish_max(wg, Side.RIGHT)
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.ODD_WEIGHTS)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.RIGHT)
        warpgroup.wait_group(0)
        if more:  # else it is the output's way out
            self.release(wg, Free.ODD_RIGHT)

    @cute.jit
    def right_alone(self, wg):
        """Left's even tile."""
        sync(Handover.EVEN_WEIGHTS)
        adopt_max(wg, Side.LEFT)
        rescale(wg.out, wg.shrink)
        accumulate(wg, SMEM, wg.peer_weights, Side.LEFT)
        warpgroup.wait_group(0)
