"""FlashAttention on Hopper, base: hopper_attention's kernel on queries and keys in two parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.errors import PlanError
from mla_var3.kernel.cute_python.attention.hopper_attention.common import Shape, require_room
from mla_var3.kernel.cute_python.mla.mla_shared_prefix.prefix import Prefix
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, Dynamic
from mla_var3.workloads import option
from mla_var3.workloads.mla import DecompressedProblem

if TYPE_CHECKING:
    import torch

#: The one launch.
STAGE = "attention"
#: Widths of a head without its position part, and of that part: whole slabs of 64.
WIDTHS, ROPE = (64, 128), 64
LN_2 = 0.6931471805599453


@dataclass(frozen=True, kw_only=True)
class Tiling(CuteTiling):
    """Keys of a step, the depth of the rings, and how many blocks stay."""

    keys: int = option(128, "keys per step", minimum=16)
    stages: int = option(2, "steps of keys and of values in shared memory", minimum=1)
    blocks: int | None = option(None, "blocks that stay; by default one per item", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        assert isinstance(plan, Plan)
        require_room(self.keys, self.stages, plan.d + plan.p, plan.d)


@dataclass(frozen=True, kw_only=True)
class Plan(DecompressedProblem, KernelPlan):
    """Problem and launch of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    def validate(self) -> None:
        super().validate()
        if self.d not in WIDTHS or self.p != ROPE:
            raise PlanError(
                f"d={self.d} and p={self.p}: this design is built for d={WIDTHS[0]} or "
                f"{WIDTHS[1]} and p={ROPE}, whole slabs"
            )

    def default_tiling(self, stage: str) -> Tiling:
        # Under a mask items differ in length: there the hardware's order balances them.
        return Tiling(blocks=None if self.causal else self.target.sm_count)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        rings, blocks = ((128, 2), (112, 2), (64, 4)), (None, self.target.sm_count)
        return {
            STAGE: [
                Tiling(keys=keys, stages=stages, blocks=count)
                for keys, stages in rings
                for count in blocks
            ]
        }

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        named = dict(zip(("q", "qpe", "key", "value", "kpe"), inputs, strict=True))
        outputs = dict(zip(("o", "lse"), self.empty_outputs(inputs[0].device), strict=True))
        dynamic = [
            Dynamic(x, tuple(range(x.ndim if name == "lse" else x.ndim - 1)))
            for name, x in {**named, **outputs}.items()
        ]
        return CuteKernel(
            Prefix.attention,
            lambda x: (Prefix(self.shape(x), x.blocks), (*dynamic, self.scale / LN_2)),
            input_tensors=named,
            output_tensors=outputs,
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
            _name=STAGE,
        )

    def shape(self, tiling: Tiling) -> Shape:
        """What the kernel is compiled for: a sequence is a group of one member."""
        return Shape(self.d + self.p, self.d, tiling.keys, tiling.stages, self.causal)
