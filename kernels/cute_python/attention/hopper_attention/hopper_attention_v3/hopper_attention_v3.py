"""Hopper attention v3: blocks that stay.

One block per SM takes item after item. The next item's keys and values land under the last steps
and the store of this one. Under a mask, items differ in length: there each has a block of its own,
long ones of a head first, since the hardware's own order balances better than a fixed one.
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
    CONSUMERS,
    TURN,
    Attention,
    HopperPlan,
    RingTiling,
    Shape,
)
from mla_var3.runtime import RuntimeObject
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Tiling(RingTiling):
    """Ring, and how many blocks stay."""

    blocks: int | None = option(
        None, "blocks that stay; by default one per SM, under a mask one per item", minimum=1
    )


@dataclass(frozen=True, kw_only=True)
class Plan(HopperPlan):
    """Problem and launch of v3."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {"attention": [Tiling(keys=keys) for keys in (64, 96, 128)]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        return self.launch(
            Kernel.attention,
            lambda x: Kernel(
                Shape(self.d, self.d, x.keys, x.stages, self.causal),
                x.blocks or (None if self.causal else self.target.sm_count),
            ),
            inputs,
        )


class Kernel(Attention):
    """Products in turn, by one named barrier per warpgroup."""

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
        """Grid (blocks)."""
        self.run(q_loads, k_loads, v_load, o_store, lse, scale_log2)

    @cute.jit
    def attend(self, wg, storage, item, steps, done):
        """The scores of step i run under the output of step i - 1 as v1."""
        place = self.place_of(wg, done, 0)
        self.scores(wg, storage, place)
        warpgroup.wait_group(0)
        self.release(storage.k_free, place)
        self.softmax(wg, self.tile_of(wg, item, steps, 0))
        self.round_weights(wg)
        for i in cutlass.range(1, steps, unroll=1):
            before, place = self.place_of(wg, done, i - 1), self.place_of(wg, done, i)
            self.wait_turn(wg)
            self.scores(wg, storage, place)
            self.accumulate(wg, storage, before)
            self.pass_turn(wg)
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

    @cute.jit
    def enter(self, wg):
        if wg.number == 1:
            self.pass_turn(wg)

    @cute.jit
    def leave(self, wg):
        if wg.number == 0:
            self.wait_turn(wg)

    @cute.jit
    def wait_turn(self, wg):
        cute.arch.barrier(barrier_id=TURN + wg.number, number_of_threads=CONSUMERS)

    @cute.jit
    def pass_turn(self, wg):
        cute.arch.barrier_arrive(barrier_id=TURN + 1 - wg.number, number_of_threads=CONSUMERS)
