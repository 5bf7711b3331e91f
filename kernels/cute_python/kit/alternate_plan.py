"""Plans of sparse latent attention in one launch: workers merge what they share of a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.kernel.cute_python.kit.alternate import AlternateKernel
from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.halved import HALVED_PLACE
from mla_var3.kernel.cute_python.kit.joined_plan import exchanged
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.sparse_plan import SparsePlan, SparseTiling
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import require_one_of
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class AlternateTiling(SparseTiling):
    """How far the running maximum may lag, and how many CTAs convert for each other."""

    share: int = option(1, "row tiles of a cluster that convert for each other (1 or 2)", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((1, 2), share=self.share)


@dataclass(frozen=True, kw_only=True)
class AlternatePlan(SparsePlan):
    """Problem and launch; ``kernel`` is the version's."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": AlternateTiling}

    kernel: ClassVar[type[AlternateKernel]]
    schedule = Even(2, join=4, each=2)

    def default_tiling(self, stage: str) -> Tiling:
        return AlternateTiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        shares = range(1, min(self.row_tiles, 2) + 1)
        return {"attention": [AlternateTiling(share=n) for n in shares]}

    @property
    def share(self) -> int:
        share: int = self.tiling("attention").share
        return share

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        tiles, device = self.groups(self.share) * self.share, inputs[0].device
        named = dict(zip(("q", "qpe", "cache", "indices", "lengths"), inputs, strict=True))
        scratch = exchanged(self.cuts(), tiles, HALVED_PLACE, device)
        return self.bind(
            "attention",
            self.kernel.sparse_attention,
            lambda x: self.kernel(x.lazy, x.share),
            {**named, **scratch},
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.scale / LN_2, LN_2, float("-inf")),
            self._algorithmic_flops_bytes(),
        )
