"""Root mean square normalization: each row over the root of the mean of its squares."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.workloads.base import Cost, Problem, Workload, option

if TYPE_CHECKING:
    import torch

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class RmsNormProblem(Problem):
    """Input: x ``[rows,columns]``. Output: y of the same shape."""

    covers: ClassVar[str] = "one normalization, input and output in DRAM"

    rows: int = option(65536, "rows, each normalized for itself", minimum=1)
    columns: int = option(4096, "values of a row", minimum=1)

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        return self.random(device, (self.rows, self.columns))

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        x = inputs[0].float()
        return {"y": x * (x.square().mean(1, keepdim=True) + EPSILON).rsqrt()}

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        values = self.rows * self.columns
        return Cost(3 * values, 2 * self.element_bytes * values)

    def check_plans(self) -> list[Self]:
        """One row, one column, and rows that fill no tile."""
        sizes = ((1, 64, "bf16"), (5, 1, "fp16"), (33, 200, "bf16"))
        return [dataclasses.replace(self, rows=r, columns=c, dtype=d) for r, c, d in sizes]

    def shrunk(self) -> Self:
        return dataclasses.replace(self, rows=min(self.rows, 40), columns=min(self.columns, 200))


WORKLOAD = Workload(
    key="rms_norm",
    title="RMS norm",
    summary="Rows over the root of the mean of their squares.",
    problem=RmsNormProblem,
    sweep="rows",
    compared=("rows", "columns", "dtype"),
)
