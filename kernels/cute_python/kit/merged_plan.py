"""Plans of sparse latent attention in one launch, whose CTAs convert for themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.joined_plan import exchanged
from mla_var3.kernel.cute_python.kit.l2 import PLACE
from mla_var3.kernel.cute_python.kit.merged import MergedKernel
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.sparse_plan import SparsePlan, SparseTiling
from mla_var3.runtime import RuntimeObject, Tiling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class MergedPlan(SparsePlan):
    """Problem and launch; ``kernel`` is the version's."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": SparseTiling}

    kernel: ClassVar[type[MergedKernel]]
    schedule = Even(2, least=4, join=6, each=2)

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        device = inputs[0].device
        named = dict(zip(("q", "qpe", "cache", "indices", "lengths"), inputs, strict=True))
        scratch = exchanged(self.cuts(), self.groups(1), PLACE, device)
        return self.bind(
            "attention",
            self.kernel.sparse_attention,
            lambda x: self.kernel(x.lazy),
            {**named, **scratch},
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.scale / LN_2, LN_2, float("-inf")),
            self._algorithmic_flops_bytes(),
        )
