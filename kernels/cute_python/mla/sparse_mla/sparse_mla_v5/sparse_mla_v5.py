"""Sparse MLA v5: as v4, but a tile's scales are made fp16 after the wait for its place.

All that a warp has under way has come by then; before it, making them waits for the latest bytes
(kit/window.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.merged_plan import MergedPlan
from mla_var3.kernel.cute_python.kit.window import WindowKernel


class Kernel(WindowKernel):
    """Scales wait no longer than values do."""

    ahead = False


@dataclass(frozen=True, kw_only=True)
class Plan(MergedPlan):
    """Problem and launch."""

    kernel = Kernel
