"""Sparse MLA v3: v1's producers in one launch, the next tile's tokens on their way to L2.

Parts of lists are merged within attention, as in v18 of flash_mla, and while the tokens of one tile
are converted, those of the next are fetched as far as L2 (kit/merged.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.merged import MergedKernel
from mla_var3.kernel.cute_python.kit.merged_plan import MergedPlan


class Kernel(MergedKernel):
    """Tokens are sent for a tile ahead."""


@dataclass(frozen=True, kw_only=True)
class Plan(MergedPlan):
    """Problem and launch."""

    kernel = Kernel
