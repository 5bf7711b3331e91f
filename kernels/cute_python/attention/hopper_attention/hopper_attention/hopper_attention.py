"""Hopper attention, base: loads run ahead of two warpgroups, whose products and softmax take turns.

Three producer warps fill rings of keys and values by TMA. A warpgroup waits for its scores before
the softmax, and for its output before the next scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cutlass
import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.attention.hopper_attention.common import (
    Attention,
    HopperPlan,
    RingTiling,
    Shape,
)
from mla_var3.runtime import RuntimeObject, Tiling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Plan(HopperPlan):
    """Problem and launch of the base."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": RingTiling}

    def default_tiling(self, stage: str) -> Tiling:
        return RingTiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {"attention": [RingTiling(keys=keys) for keys in (64, 96, 128)]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        return self.launch(
            Kernel.attention,
            lambda x: Kernel(Shape(self.d, self.d, x.keys, x.stages, self.causal)),
            inputs,
        )


class Kernel(Attention):
    """One step after another."""

    def device(self):
        """The device function."""
        return self.attention

    @cute.kernel
    def attention(
        self,
        q_loads: tuple,
        k_loads: tuple,
        v_load: tuple,
        o_store: tuple,
        lse: cute.Tensor,
        scale_log2: Float32,
    ):
        """Grid (items)."""
        self.run(q_loads, k_loads, v_load, o_store, lse, scale_log2)

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
