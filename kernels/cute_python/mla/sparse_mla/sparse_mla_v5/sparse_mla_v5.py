"""Sparse MLA v5: eight producer warps, two per scheduler, each with eight tokens of the next tile.

While one warp waits for its bytes, the other one converts (kit/eights.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.eights import EightsKernel
from mla_var3.kernel.cute_python.kit.merged_plan import MergedPlan


class Kernel(EightsKernel):
    """Twice as many warps convert."""


@dataclass(frozen=True, kw_only=True)
class Plan(MergedPlan):
    """Problem and launch."""

    kernel = Kernel
