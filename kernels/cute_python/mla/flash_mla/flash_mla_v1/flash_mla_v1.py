"""FlashMLA v1: lazy rescaling: the running maximum is raised only when it has to be.

Rows whose new maximum exceeds the running one by no more than ``lazy`` (in units of log2) keep the
old one: weights then reach at most 2**lazy, which fp32 sums and 16-bit weights hold, and neither
the output nor the other warpgroup's weights are rescaled. ``lazy=0`` is the exact online softmax.

The rule is ``raised`` of kit/softmax.py, and its setting ``LazyTiling`` of kit/latent_tiling.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.epilogue import FragmentEpilogue
from mla_var3.kernel.cute_python.kit.latent_plan import LatentPlan
from mla_var3.kernel.cute_python.kit.tile_kernel import TileKernel


class Kernel(TileKernel):
    """The same with a tiling that says how far a maximum may lag: ``raised`` of the softmax."""

    epilogue_type = FragmentEpilogue


@dataclass(frozen=True, kw_only=True)
class Plan(LatentPlan):
    """Problem and launch, under ``LazyTiling``."""

    kernel = Kernel
