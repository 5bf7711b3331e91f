"""FlashMLA v10: two CTAs with the same rows merge through L2, and clusters share keys.

The CTAs that split the keys of a row tile are in two clusters. Each leaves the half of the output
that it does not keep in global memory, where it stays in L2, and signals it warp by warp; the other
waits for that. All CTAs of such a launch run at once. So a cluster is free to share keys as in v4:
those of clusters of two that fill the chip, where v7's clusters of four did not fit.

The exchange is ``L2Epilogue`` of kit/epilogue.py, over kit/l2.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.l2_kernel import L2Kernel
from mla_var3.kernel.cute_python.kit.l2_plan import L2Plan


class Kernel(L2Kernel):
    """CTAs that split keys are in clusters of their own; whole halves go through L2."""


@dataclass(frozen=True, kw_only=True)
class Plan(L2Plan):
    """Problem and launches."""

    kernel = Kernel
