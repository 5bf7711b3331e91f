"""Plans of per-head attention on Hopper: tiling of the K and V pipeline, and the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.errors import PlanError, TilingError
from mla_var3.kernel.cute_python.kit.head_items import GROUPS, Shape
from mla_var3.kernel.cute_python.kit.head_tiles import ROWS, SLAB
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import (
    CuteKernel,
    CuteTiling,
    by_rows,
    require_multiple,
    require_shared_memory,
)
from mla_var3.workloads import option
from mla_var3.workloads.attention import AttentionProblem

if TYPE_CHECKING:
    import torch

ELEMENT_BYTES = 2
#: Shared memory that a block of sm_90 may ask for, and what barriers and alignment take of it.
SHARED_BYTES, BARRIER_BYTES = 232448, 1024
#: Most keys of a step: more scores and weights than theirs, beside the output, spill.
MAX_KEYS = 128
LN_2 = 0.6931471805599453


@dataclass(frozen=True, kw_only=True)
class RingTiling(CuteTiling):
    """Keys of a step, and how many steps are in shared memory."""

    keys: int = option(128, "keys per step", minimum=16)
    stages: int = option(2, "steps of keys and of values in shared memory", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        assert isinstance(plan, AttentionProblem)
        require_room(self.keys, self.stages, plan.d, plan.d)


def require_room(keys: int, stages: int, d_qk: int, d_v: int) -> None:
    """Raise TilingError unless ``stages`` steps of ``keys`` keys fit beside the queries."""
    require_multiple(16, keys=keys)
    if keys > MAX_KEYS:
        raise TilingError(f"keys={keys} exceeds {MAX_KEYS}: scores and weights would spill")
    require_shared_memory(
        SHARED_BYTES,
        queries=GROUPS * ROWS * d_qk * ELEMENT_BYTES,
        stages=stages * keys * (d_qk + d_v) * ELEMENT_BYTES,
        barriers=BARRIER_BYTES,
    )


@dataclass(frozen=True, kw_only=True)
class HeadPlan(AttentionProblem, KernelPlan):
    """Problems whose head dimension is whole slabs, and their launch by a version's ``kernel``."""

    kernel: ClassVar[type[Any]]
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": RingTiling}

    def validate(self) -> None:
        super().validate()
        if self.d not in (SLAB, 2 * SLAB):
            raise PlanError(f"d={self.d} is not {SLAB} or {2 * SLAB}")

    def default_tiling(self, stage: str) -> Tiling:
        return self.tiling_types[stage]()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {
            stage: [kind(keys=keys) for keys in (64, 96, 128)]
            for stage, kind in self.tiling_types.items()
        }

    def host(self, tiling: RingTiling) -> Any:
        """The host function for a tiling."""
        return self.kernel(Shape(self.d, self.d, tiling.keys, tiling.stages, self.causal))

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, k, v = inputs
        o = self.empty_output(q.device)
        lse = self.empty(self.b, self.h, self.s, device=q.device, fp32=True)
        dynamic = by_rows({"q": q, "k": k, "v": v, "o": o, "lse": lse})
        arguments = (*dynamic, self.d**-0.5 / LN_2)
        return CuteKernel(
            self.kernel.attention,
            lambda x: (self.host(x), arguments),
            input_tensors={"q": q, "k": k, "v": v},
            output_tensors={"o": o},
            tiling=self.tiling("attention"),
            autotune_configs=self._autotune_configs()["attention"],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
        )
