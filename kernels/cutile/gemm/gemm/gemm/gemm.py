"""GEMM: one block per tile of the result, tiles in row-major order."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

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
    """The result tile of a block and the step along the sum."""

    tile_k: int = option(64, "columns of A and B per step", minimum=16)

    #: Twice the others: the accumulator is all that a block keeps.
    max_elements: ClassVar[int] = 128 * 256

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_power_of_two(tile_k=self.tile_k)


@dataclass(frozen=True, kw_only=True)
class Plan(GemmProblem, KernelPlan):
    """Problem and launch of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling(tile_m=128, tile_n=128, tile_k=64)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        grid = itertools.product((64, 128), (128, 256), (32, 64), (None, 8))
        return {
            STAGE: [Tiling(tile_m=m, tile_n=n, tile_k=k, num_worker_warps=w) for m, n, k, w in grid]
        }

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        a, b = inputs
        c = self.empty_output(a.device)
        return CtKernel(
            gemm,
            grid_fn=lambda x: (ct.cdiv(self.n, x.tile_n), ct.cdiv(self.m, x.tile_m)),
            args_fn=lambda x: (a, b, c, x.tile_m, x.tile_n, x.tile_k),
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
):
    """Grid (column tiles, row tiles): a [m,k], b [n,k], c [m,n]."""
    tile_m, tile_n = ct.bid(1), ct.bid(0)
    zero = ct.PaddingMode.ZERO
    acc = ct.zeros((TILE_M, TILE_N), ct.float32)
    for step in range(ct.cdiv(a.shape[1], TILE_K)):
        rows = ct.load(a, (tile_m, step), (TILE_M, TILE_K), padding_mode=zero)
        columns = ct.load(b, (tile_n, step), (TILE_N, TILE_K), padding_mode=zero)
        acc = ct.mma(rows, columns.transpose(), acc)
    ct.store(c, (tile_m, tile_n), acc.astype(c.dtype))
