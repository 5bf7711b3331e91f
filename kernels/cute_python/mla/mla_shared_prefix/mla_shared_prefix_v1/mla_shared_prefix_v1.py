"""Shared prefix v1: both parts at the same time.

The prefix waits for DRAM and the own tokens for the tensor cores, so each gets SMs of its own: the
own tokens half of them, or as many as there are tiles of rows, and the prefix the others.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mla_var3.kernel.cute_python.attention.hopper_attention.common import ROWS
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v5.flash_mla_v5 import FlashMlaV5Tiling
from mla_var3.kernel.cute_python.mla.mla_shared_prefix.common import SharedPrefixPlan
from mla_var3.runtime import ConcurrentKernels, KernelPipeline, RuntimeObject, Tiling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class MlaSharedPrefixV1Plan(SharedPrefixPlan):
    """Launches of v1."""

    def default_tiling(self, stage: str) -> Tiling:
        tiling = super().default_tiling(stage)
        if stage == "decompressed" and self.own_tokens:
            free = self.target.sm_count - self.latent_tiling().blocks
            return dataclasses.replace(tiling, blocks=free)
        return tiling

    def latent_tiling(self) -> FlashMlaV5Tiling:
        if not self.prefix_tokens:
            return super().latent_tiling()
        tiles = -(-self.h * self.s // ROWS)
        half = min(tiles * self.b, self.target.sm_count // 2)
        return FlashMlaV5Tiling(share=2 if tiles > 1 else 1, blocks=max(half // 2 * 2, 2))

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        parts, combine = self.stages(*inputs)
        both = ConcurrentKernels(_name="parts", concurrent_kernels=parts)
        return KernelPipeline(_name="mla_shared_prefix_v1", stages=[both, combine])
