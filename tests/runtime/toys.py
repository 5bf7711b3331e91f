"""A plan and kernels that run in milliseconds, for tests of what surrounds kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import cuda.tile as ct
import torch

from mla_var3.devices import Machine
from mla_var3.errors import TilingError
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import (
    ConstFloat,
    ConstInt,
    CtKernel,
    CutileTiling,
    require_power_of_two,
)
from mla_var3.workloads import Cost, option


@dataclass(frozen=True, kw_only=True)
class ToyTiling(CutileTiling):
    """Elements a block."""

    tile: int = option(16, "elements a block", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_power_of_two(tile=self.tile)
        if isinstance(plan, ToyPlan) and self.tile > 8 * plan.size:
            raise TilingError(f"tile={self.tile} exceeds 8*size = {8 * plan.size}")


@ct.kernel
def scaled(x: ct.Array, y: ct.Array, FACTOR: ConstFloat, TILE: ConstInt):
    """y = x * FACTOR, one dimension."""
    tile = ct.load(x, (ct.bid(0),), (TILE,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (ct.bid(0),), tile * FACTOR)


def kernel(
    name: str,
    x: torch.Tensor,
    y: torch.Tensor | None = None,
    *,
    factor: float = 2.0,
    tile: int = 16,
    output: str = "y",
) -> CtKernel:
    """A stage that writes ``x * factor`` to ``y`` (fresh unless given)."""
    y = torch.full_like(x, float("nan")) if y is None else y
    return CtKernel(
        scaled,
        grid_fn=lambda t: (ct.cdiv(x.shape[0], t.tile),),
        args_fn=lambda t: (x, y, factor, t.tile),
        input_tensors={"x": x},
        output_tensors={output: y},
        tiling=ToyTiling(tile=tile),
        autotune_configs=[ToyTiling(tile=n) for n in (8, 16, 32, 1 << 20)],
        algorithmic_flops_bytes_fn=lambda _: Cost(x.numel(), 8 * x.numel()),
        _name=name,
    )


@dataclass(frozen=True, kw_only=True)
class ToyPlan(KernelPlan):
    """y = 2x; ``wrong`` makes the kernel triple instead."""

    covers: ClassVar[str] = "doubling"
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"toy": ToyTiling}

    size: int = option(40, "elements", minimum=1)
    wrong: bool = option(False, "triple instead of double")
    extra: int | None = option(None, "left open until resolved", minimum=0)
    factor: float = dataclasses.field(default=2.0, metadata={"hidden": True})

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        if torch.device(device).type == "meta":
            return (torch.empty(self.size, dtype=self.torch_dtype, device="meta"),)
        return (torch.linspace(-1, 1, self.size, device=device).to(self.torch_dtype),)

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": inputs[0].float() * 2}

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {"toy": [ToyTiling(tile=n) for n in (8, 16, 32)]}

    def _algorithmic_flops_bytes(self, tiling: Tiling | None = None) -> Cost:
        return Cost(self.size, 2 * self.element_bytes * self.size)

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        factor = 3.0 if self.wrong else self.factor
        built = kernel("toy", inputs[0], factor=factor)
        built.tiling = self.tiling("toy")
        return built

    def default_tiling(self, stage: str) -> Tiling:
        return ToyTiling()

    def check_plans(self) -> list[Self]:
        return [dataclasses.replace(self, size=size) for size in (5, 16, 33)]

    def shrunk(self) -> Self:
        return dataclasses.replace(self, size=min(self.size, 33))

    def resolve(self, machine: Machine) -> Self:
        resolved = super().resolve(machine)
        return dataclasses.replace(resolved, extra=7) if self.extra is None else resolved
