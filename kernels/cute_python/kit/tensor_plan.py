"""Plan of latent attention over pages in tiles of 128 rows, for archs with tensor memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from mla_var3.kernel.cute_python.kit.latent_tiling import LazyTiling
from mla_var3.kernel.cute_python.kit.paged_plan import PagedPlan
from mla_var3.kernel.cute_python.kit.slabs import KEYS, ROWS
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.tall_products import TALL
from mla_var3.kernel.cute_python.kit.tensor_kernel import TensorKernel
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteTiling, require_one_of
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

#: Tiles of 64 rows, in which slots of parts are counted, of a tile of 128.
SHARE = TALL // ROWS


@dataclass(frozen=True, kw_only=True)
class TensorTiling(LazyTiling):
    """How far the running maximum may lag, and what one load takes."""

    lazy: float = option(8.0, "log2 by which a row's maximum may lag behind; 0 is exact", minimum=0)
    box: int = option(KEYS, "keys that one load takes from a page", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of([KEYS >> i for i in range(7)], box=self.box)
        page = getattr(plan, "page", None)
        if page is not None:
            require_one_of([min(page, KEYS)], box=self.box)


@dataclass(frozen=True, kw_only=True)
class TensorPlan(PagedPlan):
    """Problem and launches; ``tensor_kernel`` is the version's."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": TensorTiling,
        "merge": CuteTiling,
    }

    tensor_kernel: ClassVar[type[TensorKernel]]

    @property
    def share(self) -> int:
        return SHARE

    def default_tiling(self, stage: str) -> Tiling:
        return CuteTiling() if stage == "merge" else TensorTiling(box=min(self.page or KEYS, KEYS))

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {stage: [self.default_tiling(stage)] for stage in self.tiling_types}

    def check_plans(self) -> list[Self]:
        """The shared problems; pages of one token, a load each, would take long to emulate."""
        plans = super().check_plans()
        return [dataclasses.replace(x, page=8) if x.page == 1 else x for x in plans]

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        names = ("q", "qpe", "z", "kpe", "table", "lengths")
        return self.pipeline(
            self.tensor_kernel.attention,
            lambda x: self.tensor_kernel(x.lazy, x.box),
            dict(zip(names, inputs, strict=True)),
            (self.s if self.causal else 0, self.scale / LN_2),
        )
