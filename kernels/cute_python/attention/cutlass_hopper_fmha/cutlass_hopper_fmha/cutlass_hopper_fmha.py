"""CUTLASS's example `fmha`, run in place by a plan of ours.

Attention on Hopper: a producer warp, two consumer warpgroups, and the order in which softmax and
wgmma of the two alternate.

The kernel is NVIDIA's and lies in the fetched tree (`nox -s examples -- fetch`). Here are the
problem, the tilings and the launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from mla_var3.errors import PlanError, TilingError
from mla_var3.examples.driving import Fetched, device_function
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, require_one_of
from mla_var3.runtime.execution import Argued
from mla_var3.workloads import option
from mla_var3.workloads.attention import AttentionProblem

if TYPE_CHECKING:
    import torch

example = Fetched(
    "cute/hopper/kernel/attention/fmha.py",
    "6a4c35e596762fa23a25157235f226f6a89fb24e",
)
STAGE = "attention"
#: What is found in the example itself, and is no fault of how it is driven.
FOUND = (
    Argued(
        "left-pending",
        "fmha.py",
        1244,
        "a block ends while its last stores may still read its shared memory: the example has no "
        "`producer_tail`; right as long as a block's shared memory stays until they have",
    ),
)
#: Head dimensions that fill whole slabs of the swizzle.
HEADS = (32, 64, 128, 256)
#: Query rows of a warpgroup.
ROWS = 64
LOG2_E = 1.4426950408889634


@dataclass(frozen=True, kw_only=True)
class Tiling(CuteTiling):
    """The example's tiles."""

    tile_m: int = option(ROWS, "queries per warpgroup, of which there are two")
    tile_n: int = option(128, "keys per step")
    persistent: bool = option(False, "as many blocks as fit, each with several tiles")

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((ROWS,), tile_m=self.tile_m)
        require_one_of((64, 128), tile_n=self.tile_n)
        assert isinstance(plan, AttentionProblem)
        if plan.d == 256 and self.tile_n > 64:
            raise TilingError(f"tile_n={self.tile_n} and d=256 exceed the shared memory of sm_90")


@dataclass(frozen=True, kw_only=True)
class Plan(AttentionProblem, KernelPlan):
    """Problem and launch."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    def validate(self) -> None:
        super().validate()
        if self.d not in HEADS:
            raise PlanError(f"d={self.d} is not one of {', '.join(map(str, HEADS))}")
        if self.s <= ROWS:
            # Of a shape of one tile of rows, compiled in, the copy has no coordinate left: the
            # second warpgroup's tile, which lies past the end, is stored over the first one's.
            raise PlanError(
                f"s={self.s}: shapes are compiled in here, and the example then takes more than "
                f"{ROWS} rows"
            )

    def check_plans(self) -> list[Self]:
        return [plan for plan in super().check_plans() if plan.s > ROWS]

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling(tile_n=64 if self.d == 256 else 128)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        choices = [(n, persistent) for n in (64, 128) for persistent in (False, True)]
        return {
            STAGE: [
                Tiling(tile_n=n, persistent=persistent)
                for n, persistent in choices
                if self.d < 256 or n == 64
            ]
        }

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, k, v = inputs
        o = self.empty_output(q.device)
        scale = 1.0 / math.sqrt(self.d)
        lse = self.empty(self.b, self.h, self.s, 1, device=q.device, fp32=True)
        tensors = tuple(map(by_head, (q, k, v, o, lse)))
        arguments = (*tensors, scale * LOG2_E, scale, 1.0)
        return CuteKernel(
            device_function("kernel"),
            lambda tiling: example.driven(Kernel(tiling, self), *arguments),
            input_tensors={"q": q, "k": k, "v": v},
            output_tensors={"o": o},
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
            argued=FOUND,
            _name=STAGE,
        )


def by_head(x: torch.Tensor) -> torch.Tensor:
    """[b, h, s, d] as the example takes it: [s, d, 1, h, b], one query head per key head."""
    return x.unsqueeze(1).permute(3, 4, 1, 2, 0)


class Kernel:
    """Host half: the example's, with a tiling of ours."""

    def __init__(self, tiling: Tiling, problem: AttentionProblem) -> None:
        self.tile = (tiling.tile_m, tiling.tile_n, problem.d)
        self.persistent, self.causal = tiling.persistent, problem.causal
        self.ragged = problem.t % tiling.tile_n != 0

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: cutlass.Float32,
        scale: cutlass.Float32,
        out_scale: cutlass.Float32,
        stream: cuda.CUstream,
    ):
        """Launch attention of q [s,d,1,h,b] over k and v [t,d,1,h,b] into o and lse."""
        masks = example.fmha_utils.MaskEnum
        mask, right = masks.WINDOW_MASK, None
        if cutlass.const_expr(self.causal):
            mask, right = masks.WINDOW_MASK_INFERENCE, cutlass.Int32(0)
        elif cutlass.const_expr(self.ragged):
            mask = masks.RESIDUAL_MASK
        attention = example.HopperFusedMultiHeadAttentionForward(
            cutlass.Float32, cutlass.Float32, self.tile, self.persistent, mask
        )
        attention(q, k, v, o, lse, scale_log2, scale, out_scale, None, right, stream)
