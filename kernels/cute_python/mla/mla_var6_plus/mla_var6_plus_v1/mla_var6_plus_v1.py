"""MLA-var6+ v1: plan whose stages fill the GPU; n newest tokens (0 or t) by measured efficiency.

As v0, with flash_attention v1 for the newest tokens and all SMs for the old ones. An n that is left
open is 0 or t, whichever takes less time by the cost model and by how far its kernel is from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.devices import Machine
from mla_var3.kernel.cute_python.mla.mla_var6_plus.common import MixPlan
from mla_var3.kernel.cute_python.mla.mla_var6_plus.stage_plans import (
    NewestTogetherPlan,
    OldOnAllPlan,
)

#: Time of an end over the cost model's, which knows no kernel: one NVIDIA H200, 2026-11-22, back to
#: back at b=32, h=128, s=35, t=4096: n = 0 takes 2044 us of 1909, and n = t 2059 of 2071.
LATENT_LAG, DECOMPRESSED_LAG = 1.071, 0.994


@dataclass(frozen=True, kw_only=True)
class Plan(MixPlan):
    """Problem and launches."""

    old_plan = OldOnAllPlan
    newest_plan = NewestTogetherPlan

    def expected_us(self, machine: Machine) -> float:
        """As by the cost model, times how far the end's kernel is from it."""
        return super().expected_us(machine) * (DECOMPRESSED_LAG if self.new_tokens else LATENT_LAG)
