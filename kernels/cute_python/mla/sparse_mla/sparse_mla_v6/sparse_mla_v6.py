"""Sparse MLA v6: as v5, but L1 keeps nothing of the values of tokens.

A value is read once by an SM, so that no later read finds it there (kit/window.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.merged_plan import MergedPlan
from mla_var3.kernel.cute_python.kit.window import WindowKernel


class Kernel(WindowKernel):
    """Scales wait no longer than values do, and values pass L1 by."""

    ahead, kept = False, False


@dataclass(frozen=True, kw_only=True)
class Plan(MergedPlan):
    """Problem and launch."""

    kernel = Kernel
