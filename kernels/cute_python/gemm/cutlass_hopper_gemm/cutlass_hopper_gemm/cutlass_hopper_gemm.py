"""CUTLASS's example `dense_gemm`, run in place by a plan of ours.

The first Hopper product: TMA stages, wgmma kept in flight over two stages, and an epilogue by
stmatrix and TMA.

The kernel is NVIDIA's and lies in the fetched tree (`nox -s examples -- fetch`). Here are the
problem, the tilings and the launch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Float32

from mla_var3.errors import PlanError
from mla_var3.examples.driving import Fetched, device_function
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, require_one_of
from mla_var3.workloads import option
from mla_var3.workloads.gemm import GemmProblem

if TYPE_CHECKING:
    import torch

example = Fetched(
    "cute/hopper/kernel/dense_gemm/dense_gemm.py",
    "96ad83382ddc7995051d99cea55ba83728d47255",
)
STAGE = "gemm"
#: TMA wants rows that start on 16 bytes.
ROW_ELEMENTS = 8


@dataclass(frozen=True, kw_only=True)
class Tiling(CuteTiling):
    """The example's tile and cluster."""

    tile_m: int = option(128, "rows of C per block: 64 or 128")
    tile_n: int = option(256, "columns of C per block: 64, 128 or 256")
    cluster_m: int = option(1, "blocks of a cluster below each other, which share B")
    cluster_n: int = option(1, "blocks of a cluster beside each other, which share A")

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((64, 128), tile_m=self.tile_m)
        require_one_of((64, 128, 256), tile_n=self.tile_n)
        require_one_of((1, 2, 4), cluster_m=self.cluster_m, cluster_n=self.cluster_n)


@dataclass(frozen=True, kw_only=True)
class Plan(GemmProblem, KernelPlan):
    """Problem and launch."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    def validate(self) -> None:
        super().validate()
        if self.n % ROW_ELEMENTS:
            raise PlanError(
                f"n={self.n} is not a multiple of {ROW_ELEMENTS}: TMA stores rows of C that start "
                "on 16 bytes"
            )

    def check_plans(self) -> list[Self]:
        return [
            dataclasses.replace(plan, n=-(-plan.n // ROW_ELEMENTS) * ROW_ELEMENTS)
            for plan in super().check_plans()
        ]

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        tiles = ((128, 256, 1, 1), (128, 256, 2, 1), (128, 128, 1, 1), (128, 128, 2, 1))
        return {
            STAGE: [
                Tiling(tile_m=m, tile_n=n, cluster_m=across, cluster_n=along)
                for m, n, across, along in tiles
            ]
        }

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        a, b = inputs
        c = self.empty_output(a.device)
        return CuteKernel(
            device_function("kernel"),
            lambda tiling: example.driven(Kernel(tiling), *map(one_product, (a, b, c))),
            input_tensors={"a": a, "b": b},
            output_tensors={"c": c},
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
            _name=STAGE,
        )


def one_product(x: torch.Tensor) -> torch.Tensor:
    """A matrix as the example's batch of one: [rows, columns, 1]."""
    return x.unsqueeze(0).permute(1, 2, 0)


class Kernel:
    """Host half: the example's, with a tiling of ours."""

    def __init__(self, tiling: Tiling) -> None:
        self.tile = (tiling.tile_m, tiling.tile_n)
        self.cluster = (tiling.cluster_m, tiling.cluster_n)

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        """Launch c [m,n,1] = a [m,k,1] @ b [n,k,1]^T."""
        gemm = example.HopperWgmmaGemmKernel(Float32, self.tile, self.cluster)
        gemm(a, b, c, stream)
