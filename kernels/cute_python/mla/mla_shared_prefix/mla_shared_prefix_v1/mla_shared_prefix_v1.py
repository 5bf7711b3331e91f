"""Shared prefix v1: own tokens and prefix run side by side if rows are few, else the prefix first.

With one tile of rows per head the prefix waits for DRAM and the own tokens for the tensor cores, so
each gets SMs of its own: the own tokens one block per tile of rows or half of the SMs, the prefix
the others. With more, both fill the chip alone; the prefix goes first, so that the latent output is
still in L2 when the combine reads it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mla_var3.kernel.cute_python.kit.head_tiles import ROWS
from mla_var3.kernel.cute_python.kit.latent_tiling import PairTiling
from mla_var3.kernel.cute_python.kit.prefix_plan import SharedPrefixPlan
from mla_var3.runtime import ConcurrentKernels, KernelPipeline, RuntimeObject, Tiling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Plan(SharedPrefixPlan):
    """Launches of v1."""

    @property
    def together(self) -> bool:
        """Whether the parts run side by side; while ``prefix`` is open, as if there were both."""
        return self.row_tiles == 1 and self.prefix not in (0, self.t)

    def default_tiling(self, stage: str) -> Tiling:
        tiling = super().default_tiling(stage)
        if stage != "decompressed":
            return tiling
        sms = self.target.sm_count
        free = sms - self.latent_tiling().blocks if self.together else sms
        return dataclasses.replace(tiling, blocks=free)

    def latent_tiling(self) -> PairTiling:
        if not self.together:
            return super().latent_tiling()
        tiles = -(-self.h * self.s // ROWS)
        half = min(tiles * self.b, self.target.sm_count // 2)
        return PairTiling(share=2 if tiles > 1 else 1, blocks=max(half // 2 * 2, 2))

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        parts, combine = self.stages(*inputs)
        if self.together:
            parts = [ConcurrentKernels(_name="parts", concurrent_kernels=parts)]
        return KernelPipeline(_name="mla_shared_prefix", stages=[*parts[::-1], combine])
