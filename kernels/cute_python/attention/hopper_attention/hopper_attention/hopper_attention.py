"""Hopper attention, base: TMA loads run ahead, wgmma products and softmax take turns.

Three producer warps fill rings of keys and values by TMA. A warpgroup waits for its scores before
the softmax, and for its output before the next scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.head_kernel import HeadKernel
from mla_var3.kernel.cute_python.kit.head_plan import HeadPlan


class Kernel(HeadKernel):
    """One step after another."""

    @cute.jit
    def attend(self, wg, storage, item, steps, done):
        """Scores, softmax, output, one after another."""
        for i in cutlass.range(steps, unroll=1):
            place = self.place_of(wg, done, i)
            self.scores(wg, storage, place)
            warpgroup.wait_group(0)
            self.release(storage.k_free, place)
            self.softmax(wg, self.tile_of(wg, item, steps, i))
            self.rescale(wg)
            self.round_weights(wg)
            self.accumulate(wg, storage, place)
            warpgroup.wait_group(0)
            self.release(storage.v_free, place)


@dataclass(frozen=True, kw_only=True)
class Plan(HeadPlan):
    """Problem and launch."""

    kernel = Kernel
