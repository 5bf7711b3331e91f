"""Plan of per-head attention on decompressed keys with a separate RoPE part, and its tiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.errors import PlanError
from mla_var3.kernel.cute_python.kit.head_items import Shape
from mla_var3.kernel.cute_python.kit.head_plan import LN_2, require_room
from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, by_rows
from mla_var3.workloads import option
from mla_var3.workloads.mla import DecompressedProblem

if TYPE_CHECKING:
    import torch

#: Widths of a head without its position part, and of that part: whole slabs of 64.
WIDTHS, ROPE = (64, 128), 64


@dataclass(frozen=True, kw_only=True)
class RopeTiling(CuteTiling):
    """Keys of a step, the depth of the rings, and how many blocks stay."""

    keys: int = option(128, "keys per step", minimum=16)
    stages: int = option(2, "steps of keys and of values in shared memory", minimum=1)
    blocks: int | None = option(None, "persistent CTAs; by default one per item", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        assert isinstance(plan, RopePlan)
        plan.require_room(self)


@dataclass(frozen=True, kw_only=True)
class RopePlan(DecompressedProblem, KernelPlan):
    """Problem and launch, by a version's ``kernel``; the launch is called ``stage``."""

    kernel: ClassVar[type[RopeKernel]] = RopeKernel
    stage: ClassVar[str] = "attention"
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": RopeTiling}

    def validate(self) -> None:
        super().validate()
        if self.d not in WIDTHS or self.p != ROPE:
            raise PlanError(
                f"d={self.d} and p={self.p}: this design is built for d={WIDTHS[0]} or "
                f"{WIDTHS[1]} and p={ROPE}, whole slabs"
            )

    def require_room(self, tiling: RopeTiling) -> None:
        """Raise TilingError unless the rings fit beside the queries."""
        require_room(tiling.keys, tiling.stages, self.d + self.p, self.d)

    def default_tiling(self, stage: str) -> Tiling:
        # Under a mask items differ in length: there the hardware's order balances them.
        return self.tiling_types[stage](blocks=None if self.causal else self.target.sm_count)

    def rings(self) -> tuple[tuple[tuple[int, int], ...], tuple[int | None, ...]]:
        """Keys and stages worth timing, and persistent CTAs."""
        return ((128, 2), (112, 2), (64, 4)), (None, self.target.sm_count)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        rings, blocks = self.rings()
        kind = self.tiling_types[self.stage]
        return {
            self.stage: [
                kind(keys=keys, stages=stages, blocks=count)
                for keys, stages in rings
                for count in blocks
            ]
        }

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        named = dict(zip(("q", "qpe", "key", "value", "kpe"), inputs, strict=True))
        outputs = dict(zip(("o", "lse"), self.empty_outputs(inputs[0].device), strict=True))
        dynamic = by_rows({**named, **outputs}, self.kernel.apart)
        return CuteKernel(
            self.kernel.attention,
            lambda x: (self.host(x), (*dynamic, self.scale / LN_2)),
            input_tensors=named,
            output_tensors=outputs,
            tiling=self.tiling(self.stage),
            autotune_configs=self._autotune_configs()[self.stage],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
            _name=self.stage,
        )

    def host(self, tiling: RopeTiling) -> Any:
        """The host function for a tiling."""
        return self.kernel(self.shape(tiling), tiling.blocks)

    def shape(self, tiling: RopeTiling) -> Shape:
        """What the kernel is compiled for: a sequence is a group of one member."""
        return Shape(self.d + self.p, self.d, tiling.keys, tiling.stages, self.causal)
