"""Hopper attention v1: a warpgroup's softmax runs under its own wgmma products.

The scores of the next step are issued before the output of this one, so that the tensor cores have
that product while the softmax of the next step goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.head_kernel import HeadKernel
from mla_var3.kernel.cute_python.kit.head_plan import HeadPlan


class Kernel(HeadKernel):
    """Output one step behind the scores."""

    @cute.jit
    def attend(self, wg, storage, item, steps, done):
        """The scores of step i run under the output of step i - 1 and before its softmax ends."""
        place = self.place_of(wg, done, 0)
        self.scores(wg, storage, place)
        warpgroup.wait_group(0)
        self.release(storage.k_free, place)
        self.softmax(wg, self.tile_of(wg, item, steps, 0))
        self.round_weights(wg)
        for i in cutlass.range(1, steps, unroll=1):
            before, place = self.place_of(wg, done, i - 1), self.place_of(wg, done, i)
            self.scores(wg, storage, place)
            self.accumulate(wg, storage, before)
            warpgroup.wait_group(1)
            self.release(storage.k_free, place)
            self.softmax(wg, self.tile_of(wg, item, steps, i))
            warpgroup.wait_group(0)
            self.release(storage.v_free, before)
            self.rescale(wg)
            self.round_weights(wg)
        place = self.place_of(wg, done, steps - 1)
        self.accumulate(wg, storage, place)
        warpgroup.wait_group(0)
        self.release(storage.v_free, place)


@dataclass(frozen=True, kw_only=True)
class Plan(HeadPlan):
    """Problem and launch."""

    kernel = Kernel
