"""Shared prefix, base: own tokens, prefix and combine, one launch after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mla_var3.kernel.cute_python.mla.mla_shared_prefix.common import SharedPrefixPlan
from mla_var3.runtime import KernelPipeline, RuntimeObject

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Plan(SharedPrefixPlan):
    """Launches of the base."""

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        parts, combine = self.stages(*inputs)
        return KernelPipeline(_name="mla_shared_prefix", stages=[*parts, combine])
