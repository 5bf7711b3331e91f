"""Plan of latent attention in clusters of up to four CTAs, which share or split keys, or both."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mla_var3.kernel.cute_python.kit.latent_plan import PartsPlan
from mla_var3.kernel.cute_python.kit.latent_tiling import ClusterTiling
from mla_var3.runtime import Tiling
from mla_var3.runtime.cute_kernel import CuteTiling

#: SMs of a GPC that clusters of four could fill; fewer of them run at once on an H200.
GPC = 16


@dataclass(frozen=True, kw_only=True)
class ClusterPlan(PartsPlan):
    """Pairs that split come first, since too few clusters of four fit."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": ClusterTiling,
        "merge": CuteTiling,
    }
    shares: ClassVar[tuple[int, ...]] = (1, 2, 4)
    split_shares: ClassVar[tuple[int, ...]] = (1, 2)

    def room(self, cluster: int = 2) -> int:
        """CTAs that run at once, in clusters of that size."""
        unit = GPC if cluster > 2 else 2
        return self.target.sm_count // unit * unit

    def check_fields(self) -> Iterable[dict[str, int]]:
        """First a problem of two row tiles; then several parts, or of fixed length."""
        parts = itertools.cycle(({"parts": 2}, {"parts": 1}, {"parts": 3}, {"invariant": 128}, {}))
        return itertools.chain([{"b": 1, "h": 80}], parts)
