"""Shared prefix v1: both parts at the same time.

With few queries the prefix waits for DRAM and the own tokens for the tensor cores, so each gets SMs
of its own: the own tokens one block per tile of rows, the prefix the others, and what comes free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mla_var3.kernel.cute_python.attention.hopper_attention.common import ROWS
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v5.flash_mla_v5 import FlashMlaV5Tiling
from mla_var3.kernel.cute_python.mla.mla_shared_prefix.common import SharedPrefixPlan
from mla_var3.runtime import ConcurrentKernels, KernelPipeline, RuntimeObject

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class MlaSharedPrefixV1Plan(SharedPrefixPlan):
    """Launches of v1."""

    def latent_tiling(self) -> FlashMlaV5Tiling:
        tiles = -(-self.h * self.s // ROWS) * self.b
        if 2 * tiles <= self.target.sm_count:
            return FlashMlaV5Tiling(blocks=max(tiles // 2 * 2, 2))
        return super().latent_tiling()

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        parts, combine = self.stages(*inputs)
        both = ConcurrentKernels(_name="parts", concurrent_kernels=parts)
        return KernelPipeline(_name="mla_shared_prefix_v1", stages=[both, combine])
