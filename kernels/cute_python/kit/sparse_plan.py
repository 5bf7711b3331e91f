"""Plans of sparse latent attention: a list of tokens counts as a sequence with one query."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.kernel.cute_python.kit.latent_tiling import LazyTiling
from mla_var3.kernel.cute_python.kit.paged_plan import SlotsPlan
from mla_var3.kernel.cute_python.kit.slabs import LATENT, ROPE
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.sparse import SparseKernel
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteTiling
from mla_var3.workloads import option
from mla_var3.workloads.mla import SparseLatentProblem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class SparseTiling(LazyTiling):
    """How far the running maximum may lag."""

    lazy: float = option(8.0, "log2 by which a row's maximum may lag behind; 0 is exact", minimum=0)


@dataclass(frozen=True, kw_only=True)
class SparsePlan(SlotsPlan, SparseLatentProblem):
    """Problem and launches; ``kernel`` is the version's."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": SparseTiling,
        "merge": CuteTiling,
    }

    kernel: ClassVar[type[SparseKernel]]

    def validate(self) -> None:
        super().validate()
        if (self.k, self.p) != (LATENT, ROPE):
            raise PlanError(f"k={self.k} and p={self.p}: this design is built for {LATENT}, {ROPE}")
        if self.dtype != "bf16":
            raise PlanError(f"dtype={self.dtype}: rotary values of the cache are in bf16")

    def default_tiling(self, stage: str) -> Tiling:
        return self.tiling_types[stage]()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {stage: [self.default_tiling(stage)] for stage in self.tiling_types}

    def edges(self) -> list[Self]:
        """Lists that chance cuts are as long as their sequences."""
        return [
            dataclasses.replace(one, topk=one.t) if one.scattered else one
            for one in super().edges()
        ]

    def sequences(self) -> list[int]:
        """Keys of each list, which is cut as a sequence is."""
        return [self.topk] * (self.b * self.s)

    @property
    def tile_rows(self) -> int:
        """Rows that attend to one list: the heads of a query token."""
        return self.h

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        named = dict(zip(("q", "qpe", "cache", "indices", "lengths"), inputs, strict=True))
        return self.pipeline(
            self.kernel.sparse_attention, lambda x: self.kernel(x.lazy), named,
            (self.scale / LN_2,),
        )  # fmt: skip
