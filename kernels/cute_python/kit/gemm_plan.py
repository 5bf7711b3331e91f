"""Plans of Hopper GEMM versions: tiling, shared-memory limit and launch; C is stored by TMA."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.kernel.cute_python.kit.gemm_tiles import (
    ELEMENT_BYTES,
    SLAB,
    SLABS_IN_FLIGHT,
    TILE_K,
    TILE_N,
)
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, Dynamic, require_shared_memory
from mla_var3.workloads import option
from mla_var3.workloads.gemm import GemmProblem

if TYPE_CHECKING:
    import torch

#: TMA wants rows that start on 16 bytes.
ROW_ELEMENTS = 8
#: Shared memory that a block of sm_90 may ask for, and what barriers and alignment take of it.
SHARED_BYTES, BARRIER_BYTES = 232448, 1024


@dataclass(frozen=True, kw_only=True)
class StagesTiling(CuteTiling):
    """How far loads run ahead."""

    stages: int = option(4, "steps of the k loop in shared memory", minimum=2)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        assert isinstance(plan, GemmPlan)
        require_stages(self.stages, plan.kernel.tile_m(), plan.kernel.groups * SLABS_IN_FLIGHT)


def require_stages(stages: int, tile_m: int, slabs: int) -> None:
    """Raise TilingError unless a ring of stages fits shared memory beside the slabs of C."""
    require_shared_memory(
        SHARED_BYTES,
        stages=stages * (tile_m + TILE_N) * TILE_K * ELEMENT_BYTES,
        slabs=slabs * SLAB * SLAB * ELEMENT_BYTES,
        barriers=BARRIER_BYTES,
    )


@dataclass(frozen=True, kw_only=True)
class GemmPlan(GemmProblem, KernelPlan):
    """Problem and launch, by a version's ``kernel``."""

    kernel: ClassVar[type[Any]]

    def validate(self) -> None:
        super().validate()
        if self.n % ROW_ELEMENTS:
            raise PlanError(
                f"n={self.n} is not a multiple of {ROW_ELEMENTS}: TMA stores rows of C that start "
                "on 16 bytes"
            )

    def check_plans(self) -> list[Self]:
        """The shared problems, n rounded up to what TMA stores."""
        return [
            dataclasses.replace(plan, n=-(-plan.n // ROW_ELEMENTS) * ROW_ELEMENTS)
            for plan in super().check_plans()
        ]

    def default_tiling(self, stage: str) -> Tiling:
        return self.tiling_types[stage]()

    def host(self, tiling: Any) -> Any:
        """The host function for a tiling."""
        return self.kernel(tiling.stages)

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        a, b = inputs
        c = self.empty_output(a.device)
        arguments = tuple(Dynamic(x, (0,)) for x in (a, b, c))
        return CuteKernel(
            self.kernel.gemm,
            lambda x: (self.host(x), arguments),
            input_tensors={"a": a, "b": b},
            output_tensors={"c": c},
            tiling=self.tiling("gemm"),
            autotune_configs=self._autotune_configs()["gemm"],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class StagesPlan(GemmPlan):
    """A ring of two to four steps."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"gemm": StagesTiling}

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {"gemm": [self.tiling_types["gemm"](stages=stages) for stages in (2, 3, 4)]}
