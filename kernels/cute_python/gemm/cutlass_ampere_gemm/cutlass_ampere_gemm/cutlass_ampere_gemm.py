"""CUTLASS's example `tensorop_gemm`, run in place by a plan of ours.

The classic Ampere tensor-core product: three cp.async stages, register double buffering, ldmatrix
and a swizzled epilogue.

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
    "cute/ampere/kernel/dense_gemm/tensorop_gemm.py",
    "fb1143834ca15fd1043f0166749b76dc04a92d94",
)
STAGE = "gemm"
#: Rows move in pieces of 16 bytes.
ROW_ELEMENTS = 8


@dataclass(frozen=True, kw_only=True)
class Tiling(CuteTiling):
    """Warps of a block; the example fixes the tile at 128x128x32 and three stages."""

    warps_m: int = option(2, "warps below each other")
    warps_n: int = option(2, "warps beside each other")

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((1, 2, 4), warps_m=self.warps_m, warps_n=self.warps_n)


@dataclass(frozen=True, kw_only=True)
class Plan(GemmProblem, KernelPlan):
    """Problem and launch."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    def validate(self) -> None:
        super().validate()
        if self.n % ROW_ELEMENTS:
            raise PlanError(
                f"n={self.n} is not a multiple of {ROW_ELEMENTS}: rows of C move in "
                "pieces of 16 bytes"
            )

    def check_plans(self) -> list[Self]:
        return [
            dataclasses.replace(plan, n=-(-plan.n // ROW_ELEMENTS) * ROW_ELEMENTS)
            for plan in super().check_plans()
        ]

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {STAGE: [Tiling(warps_m=m, warps_n=n) for m, n in ((2, 2), (2, 4), (4, 2))]}

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


def identity(x):
    """The epilogue's function of the result."""
    return x


class Kernel:
    """Host half: the example's, with a tiling of ours."""

    def __init__(self, tiling: Tiling) -> None:
        self.warps = (tiling.warps_m, tiling.warps_n, 1)

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        """Launch c [m,n,1] = a [m,k,1] @ b [n,k,1]^T."""
        gemm = example.TensorOpGemm(a.element_type, c.element_type, Float32, self.warps)
        gemm(a, b, c, stream, identity)
