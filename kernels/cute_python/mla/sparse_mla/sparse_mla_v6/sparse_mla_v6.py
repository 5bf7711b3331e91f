"""Sparse MLA v6: with 128 heads, the two CTAs of a list convert half of a tile's tokens each.

What they convert they write to both, eight lanes per row of 128 bytes (kit/twins.py). A single row
tile is computed as in v5.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.merged import MergedKernel
from mla_var3.kernel.cute_python.kit.merged_plan import MergedPlan
from mla_var3.kernel.cute_python.kit.twins import TwinsKernel
from mla_var3.kernel.cute_python.kit.window import WindowKernel


class Kernel(TwinsKernel):
    """Of an even number of row tiles."""


class Single(WindowKernel):
    """Of an odd number of row tiles."""

    ahead = False


@dataclass(frozen=True, kw_only=True)
class Plan(MergedPlan):
    """Problem and launch."""

    kernel = Kernel

    def kernel_of_rows(self) -> type[MergedKernel]:
        return Single if self.row_tiles % 2 else Kernel
