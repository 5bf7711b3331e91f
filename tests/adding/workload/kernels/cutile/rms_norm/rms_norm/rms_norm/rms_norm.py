"""RMS norm: one block per row, which stays in registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cuda.tile as ct
from mla_var3.workloads.rms_norm import EPSILON, RmsNormProblem

from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.ct_kernel import ConstFloat, ConstInt, CtKernel, CutileTiling

if TYPE_CHECKING:
    import torch

#: The one launch.
STAGE = "normalize"


@dataclass(frozen=True, kw_only=True)
class Tiling(CutileTiling):
    """Hints alone: the tile is a row."""


@dataclass(frozen=True, kw_only=True)
class Plan(RmsNormProblem, KernelPlan):
    """Problem and launch of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {STAGE: [Tiling(), Tiling(num_worker_warps=8)]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        (x,) = inputs
        y = self.empty(self.rows, self.columns, device=x.device)
        width = 1 << (self.columns - 1).bit_length()
        return CtKernel(
            normalize,
            grid_fn=lambda _: (self.rows,),
            args_fn=lambda _: (x, y, 1 / self.columns, EPSILON, width),
            input_tensors={"x": x},
            output_tensors={"y": y},
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
        )


@ct.kernel
def normalize(x: ct.Array, y: ct.Array, MEAN: ConstFloat, EPSILON: ConstFloat, WIDTH: ConstInt):
    """Grid (rows): x and y [rows,columns]."""
    row = ct.bid(0)
    zero = ct.PaddingMode.ZERO
    values = ct.load(x, (row, 0), (1, WIDTH), padding_mode=zero).astype(ct.float32)
    squares = ct.sum(values * values, axis=1, keepdims=True)
    scale = ct.rsqrt(squares * MEAN + EPSILON)
    ct.store(y, (row, 0), (values * scale).astype(y.dtype))
