"""Plans of sparse latent attention in one launch, whose CTAs convert for themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.kernel.cute_python.kit.even import even_cuts
from mla_var3.kernel.cute_python.kit.joined_plan import exchanged
from mla_var3.kernel.cute_python.kit.l2 import PLACE
from mla_var3.kernel.cute_python.kit.merged import MergedKernel
from mla_var3.kernel.cute_python.kit.slabs import KEYS
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.sparse_plan import SparsePlan, SparseTiling
from mla_var3.runtime import RuntimeObject, Tiling

if TYPE_CHECKING:
    import torch

#: What it costs to begin a list, the least part, and what it costs to merge three parts of one and
#: more, in tiles; what each of these adds, in sixteenths.
BEGIN, LEAST, JOIN, EACH = 2, 4, 6, 2


@dataclass(frozen=True, kw_only=True)
class MergedPlan(SparsePlan):
    """Problem and launch; ``kernel`` is the version's."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": SparseTiling}

    kernel: ClassVar[type[MergedKernel]]

    def cuts(self, share: int) -> list[tuple[int, ...]]:
        """Where the work of each worker begins and ends: a list is a sequence."""
        tiles = [-(-self.topk // KEYS)] * (self.b * self.s)
        workers = max(min(self.target.sm_count // self.groups(1), sum(tiles)), 1)
        return even_cuts(tiles, workers, BEGIN, least=LEAST, join=JOIN, each=EACH)

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        device = inputs[0].device
        named = dict(zip(("q", "qpe", "cache", "indices", "lengths"), inputs, strict=True))
        scratch = exchanged(self.cuts(1), self.groups(1), PLACE, device)
        return self.bind(
            "attention",
            self.kernel.sparse_attention,
            lambda x: self.kernel(x.lazy),
            {**named, **scratch},
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.scale / LN_2, LN_2, float("-inf")),
            self._algorithmic_flops_bytes(),
        )
