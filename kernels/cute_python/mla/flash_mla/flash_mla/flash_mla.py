"""FlashMLA, base version: two warpgroups share a 64x512 output, four producer warps load.

A CTA holds 64 rows (head, query) of one sequence. The output of 64x512 fp32 fills the registers
of two warpgroups: *left* keeps columns 0 to 255 and makes the weights of the even tiles of 64 keys,
*right* keeps columns 256 to 511 and makes those of the odd tiles; each hands its weights to the
other through shared memory. Two tiles are in flight, as nine 64x64 slabs each, and every slab has
a barrier of its own, so that scores start when the first slab has landed. Each producer warp
refills one half of one tile as soon as its reader lets go of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mla_var3.kernel.cute_python.kit.epilogue import FragmentEpilogue
from mla_var3.kernel.cute_python.kit.latent_plan import LatentPlan
from mla_var3.kernel.cute_python.kit.tile_kernel import TileKernel
from mla_var3.runtime import Tiling as AnyTiling
from mla_var3.runtime.cute_kernel import CuteTiling


class Kernel(TileKernel):
    """One row tile per CTA; the output is stored as the fragments of the accumulator lie."""

    epilogue_type = FragmentEpilogue


@dataclass(frozen=True, kw_only=True)
class Plan(LatentPlan):
    """Problem and launch."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[AnyTiling]]] = {"attention": CuteTiling}
