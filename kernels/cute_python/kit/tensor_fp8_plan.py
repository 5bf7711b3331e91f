"""Plan of latent attention over pages of latents in e4m3, for archs with tensor memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.pair_fp8 import HIGHEST
from mla_var3.kernel.cute_python.kit.slabs import KEYS
from mla_var3.kernel.cute_python.kit.tensor_plan import TensorPlan, TensorTiling
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteTiling
from mla_var3.workloads import option
from mla_var3.workloads.mla import PagedFp8Problem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Fp8Tiling(TensorTiling):
    """The same with a lag that leaves weights room below: they are in e4m3."""

    lazy: float = option(2.0, "log2 by which a row's maximum may lag behind; 0 is exact", minimum=0)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        if self.lazy > HIGHEST:
            raise TilingError(f"lazy={self.lazy} exceeds {HIGHEST}: e4m3 ends at 448")


@dataclass(frozen=True, kw_only=True)
class TensorFp8Plan(PagedFp8Problem, TensorPlan):
    """Problem and launches; ``tensor_kernel`` is the version's."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": Fp8Tiling,
        "merge": CuteTiling,
    }

    def default_tiling(self, stage: str) -> Tiling:
        return CuteTiling() if stage == "merge" else Fp8Tiling(box=min(self.page or KEYS, KEYS))

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        """Latents by twos as elements of 16 bits: TMA moves bytes."""
        q, qpe, z, *others = inputs
        return super().plan(q.view(qpe.dtype), qpe, z.view(qpe.dtype), *others)
