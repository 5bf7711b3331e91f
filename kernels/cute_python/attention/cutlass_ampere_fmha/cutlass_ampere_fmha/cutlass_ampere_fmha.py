"""CUTLASS's example `flash_attention_v2`, run in place by a plan of ours.

Ampere attention flash attention v2.

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
from mla_var3.runtime.cute_kernel import (
    CuteKernel,
    CuteTiling,
    require_multiple,
    require_shared_memory,
)
from mla_var3.workloads import option
from mla_var3.workloads.attention import AttentionProblem

if TYPE_CHECKING:
    import torch

example = Fetched(
    "cute/ampere/kernel/attention/flash_attention_v2.py",
    "95e3497b8723eeb85f07f89d284e6c4161e86e0d",
)
STAGE = "attention"
#: Shared memory that a block of sm_80 may ask for; the example keeps to it on every arch.
SHARED_BYTES = 163 * 1024
ELEMENT_BYTES = 2


@dataclass(frozen=True, kw_only=True)
class Tiling(CuteTiling):
    """The example's tiles and threads."""

    tile_m: int = option(128, "queries per block")
    tile_n: int = option(64, "keys per step")
    threads: int = option(128, "threads per block")

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_multiple(16, tile_m=self.tile_m, tile_n=self.tile_n)
        require_multiple(32, threads=self.threads)
        if self.tile_m * 2 % self.threads:
            raise TilingError(
                f"2 * tile_m={self.tile_m} is not a multiple of threads={self.threads}"
            )
        assert isinstance(plan, AttentionProblem)
        row = plan.d * ELEMENT_BYTES
        require_shared_memory(SHARED_BYTES, q=self.tile_m * row, k_and_v=2 * self.tile_n * row)


@dataclass(frozen=True, kw_only=True)
class Plan(AttentionProblem, KernelPlan):
    """Problem and launch."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    def validate(self) -> None:
        super().validate()
        if self.causal and self.s != self.t:
            raise PlanError(
                f"causal with s={self.s} and t={self.t}: the example aligns its mask at the first "
                "key, which is the last one's too only for s = t"
            )

    def check_plans(self) -> list[Self]:
        return [plan for plan in super().check_plans() if not plan.causal or plan.s == plan.t]

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        tiles = ((128, 64, 128), (128, 128, 128), (64, 64, 128), (128, 64, 256))
        return {STAGE: [Tiling(tile_m=m, tile_n=n, threads=threads) for m, n, threads in tiles]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, k, v = inputs
        o = self.empty_output(q.device)
        scale = 1.0 / math.sqrt(self.d)
        arguments = (*(x.transpose(1, 2) for x in (q, k, v, o)), scale)  # [b, s, h, d]
        return CuteKernel(
            device_function("kernel"),
            lambda tiling: example.driven(Kernel(tiling, self.d, self.causal), *arguments),
            input_tensors={"q": q, "k": k, "v": v},
            output_tensors={"o": o},
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
            _name=STAGE,
        )


class Kernel:
    """Host half: the example's, with a tiling of ours."""

    def __init__(self, tiling: Tiling, d: int, causal: bool) -> None:
        self.settings = (d, tiling.tile_m, tiling.tile_n, tiling.threads, causal)

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        scale: cutlass.Float32,
        stream: cuda.CUstream,
    ):
        """Launch attention of q [b,s,h,d] over k and v [b,t,h,d] into o [b,s,h,d]."""
        attention = example.FlashAttentionForwardAmpere(*self.settings)
        attention(q, k, v, o, scale, stream)
