"""Hopper attention v1: a warpgroup's softmax runs under its own products.

The scores of the next step are issued before the output of this one, so that the tensor cores have
that product while the softmax of the next step goes on.
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
    """Problem and launch of v1."""

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
    """Output one step behind the scores."""

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
