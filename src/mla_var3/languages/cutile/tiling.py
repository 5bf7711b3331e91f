"""Base classes of cuTile kernels' tilings, with the compiler's hints, and checks of tile sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mla_var3.errors import TilingError
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.tiling import Tiling
from mla_var3.workloads import option

#: Fields that are compiler hints, as ``kernel.replace_hints`` takes them.
HINTS = ("occupancy", "num_ctas", "num_worker_warps")


def require_power_of_two(**tiles: int) -> None:
    """Raise TilingError unless each named tile extent is a power of two, as cuTile demands."""
    for name, value in tiles.items():
        if value < 1 or value & (value - 1):
            raise TilingError(f"{name}={value} is not a power of two")


#: Most elements of one tile: 128 x 128 in fp32 fill a quarter of an SM's registers.
MAX_ELEMENTS = 128 * 128


def require_tile(limit: int = MAX_ELEMENTS, **extents: int) -> None:
    """Raise TilingError unless the two named extents make a tile of at most ``limit`` elements."""
    require_power_of_two(**extents)
    (one, m), (other, n) = extents.items()
    if m * n > limit:
        raise TilingError(f"{one}*{other} = {m}*{n} = {m * n} elements exceed {limit}")


@dataclass(frozen=True, kw_only=True)
class CutileTiling(Tiling):
    """Compiler hints of one stage; those left at None are the compiler's choice."""

    occupancy: int | None = option(None, "CTAs per SM that the compiler should aim for", minimum=1)
    num_ctas: int | None = option(None, "CTAs per cluster (power of two, 1 to 16)", minimum=1)
    num_worker_warps: int | None = option(
        None, "warps in the CUDA-core warp groups (4 or 8; sm_90 and newer)", minimum=4
    )

    def hints(self) -> dict[str, int]:
        """Compiler hints that are set."""
        return {name: value for name in HINTS if (value := getattr(self, name)) is not None}

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        for name in ("num_ctas", "num_worker_warps"):
            value = getattr(self, name)
            if value is not None and value & (value - 1):
                raise TilingError(f"{name}={value} is not a power of two")
        if self.num_worker_warps not in (None, 4, 8):
            raise TilingError(f"num_worker_warps={self.num_worker_warps} is not 4 or 8")
        if self.num_ctas is not None and self.num_ctas > 16:
            raise TilingError(f"num_ctas={self.num_ctas} exceeds 16")
        if self.occupancy is not None and self.occupancy > 32:
            raise TilingError(f"occupancy={self.occupancy} exceeds 32")


@dataclass(frozen=True, kw_only=True)
class TileMN(CutileTiling):
    """A block's tile of rows by columns, the accumulator or the scores of one step."""

    tile_m: int = option(64, "rows per block", minimum=16)
    tile_n: int = option(64, "columns (keys) per step", minimum=16)

    #: Most elements of the tile.
    max_elements: ClassVar[int] = MAX_ELEMENTS

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_tile(self.max_elements, tile_m=self.tile_m, tile_n=self.tile_n)
