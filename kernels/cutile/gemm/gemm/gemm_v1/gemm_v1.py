"""GEMM v1: persistent blocks, one per SM, take tiles in a swizzled order that shares L2."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import cuda.tile as ct

from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.ct_kernel import ConstInt, CtKernel, TileMN, require_power_of_two
from mla_var3.workloads import option
from mla_var3.workloads.gemm import GemmProblem

if TYPE_CHECKING:
    import torch


#: The one launch.
STAGE = "gemm"


@dataclass(frozen=True, kw_only=True)
class Tiling(TileMN):
    """The result tile of a block, the step along the sum, and the order of tiles."""

    tile_k: int = option(64, "columns of A and B per step", minimum=16)
    group_m: int = option(8, "row tiles whose columns are walked through together", minimum=1)

    #: Twice the others: the accumulator is all that a block keeps.
    max_elements: ClassVar[int] = 128 * 256

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_power_of_two(tile_k=self.tile_k)


@dataclass(frozen=True, kw_only=True)
class Plan(GemmProblem, KernelPlan):
    """Problem and launch of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    blocks: int | None = option(
        None, "blocks of the launch; by default one per SM, at most one per tile", minimum=1
    )

    def check_plans(self) -> list[Self]:
        """The shared problems, with fewer blocks than tiles and with the default."""
        counts = (None, 3, 1, None, None, 5, 2)
        return [
            dataclasses.replace(plan, blocks=count)
            for plan, count in zip(super().check_plans(), counts, strict=True)
        ]

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling(tile_m=128, tile_n=128, tile_k=64)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        grid = itertools.product((64, 128), (128, 256), (32, 64), (None, 8), (4, 8))
        return {
            STAGE: [
                Tiling(tile_m=m, tile_n=n, tile_k=k, num_worker_warps=w, group_m=g)
                for m, n, k, w, g in grid
            ]
        }

    def tiles(self, tiling: Tiling) -> int:
        """Tiles of the result."""
        return ct.cdiv(self.m, tiling.tile_m) * ct.cdiv(self.n, tiling.tile_n)

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        a, b = inputs
        c = self.empty_output(a.device)
        return CtKernel(
            gemm,
            grid_fn=lambda x: (min(self.blocks or self.target.sm_count, self.tiles(x)),),
            args_fn=lambda x: (a, b, c, x.tile_m, x.tile_n, x.tile_k, x.group_m),
            input_tensors={"a": a, "b": b},
            output_tensors={"c": c},
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
        )


@ct.kernel
def gemm(
    a: ct.Array,
    b: ct.Array,
    c: ct.Array,
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    TILE_K: ConstInt,
    GROUP_M: ConstInt,
):
    """Grid (blocks): a [m,k], b [n,k], c [m,n]."""
    tiles_m, tiles_n = ct.cdiv(c.shape[0], TILE_M), ct.cdiv(c.shape[1], TILE_N)
    zero = ct.PaddingMode.ZERO
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        # GROUP_M row tiles at a time, column by column: neighbors share columns of B.
        group = tile // (GROUP_M * tiles_n)
        height = ct.minimum(tiles_m - group * GROUP_M, GROUP_M)
        place = tile % (GROUP_M * tiles_n)
        tile_m, tile_n = group * GROUP_M + place % height, place // height
        acc = ct.zeros((TILE_M, TILE_N), ct.float32)
        for step in range(ct.cdiv(a.shape[1], TILE_K)):
            rows = ct.load(a, (tile_m, step), (TILE_M, TILE_K), padding_mode=zero)
            columns = ct.load(b, (tile_n, step), (TILE_N, TILE_K), padding_mode=zero)
            acc = ct.mma(rows, columns.transpose(), acc)
        ct.store(c, (tile_m, tile_n), acc.astype(c.dtype))
