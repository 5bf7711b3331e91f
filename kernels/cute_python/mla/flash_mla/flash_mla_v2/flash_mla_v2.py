"""FlashMLA v2: the output is stored through shared memory and TMA (kit/stores.py).

The fragments of an accumulator scatter over rows, so storing them directly takes four bytes at a
time. Here each warpgroup gathers its 64x256 in four slabs of the cache, its own half of the odd
tile (stmatrix), and one warp sends them off; TMA clips the rows past the last head.

The way out is ``send_output`` of kit/stores.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.epilogue import Epilogue
from mla_var3.kernel.cute_python.kit.latent_plan import LatentPlan
from mla_var3.kernel.cute_python.kit.tile_kernel import TileKernel


class Kernel(TileKernel):
    """The output leaves by TMA: ``send_output`` of the stores."""

    epilogue_type = Epilogue


@dataclass(frozen=True, kw_only=True)
class Plan(LatentPlan):
    """Problem and launch."""

    kernel = Kernel
