"""Stage plans of v1: old tokens on all SMs; few newest queries on rows of both warpgroups."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mla_var3.kernel.cute_python.kit.latent_tiling import L2Tiling
from mla_var3.kernel.cute_python.kit.rope_plan import RopeTiling
from mla_var3.kernel.cute_python.kit.shared_rows import SharedRowsKernel
from mla_var3.kernel.cute_python.kit.shared_rows_plan import SharedRowsPlan
from mla_var3.kernel.cute_python.mla.mla_var6_plus.parts import NewestTokens, OldPlan
from mla_var3.runtime import Tiling


@dataclass(frozen=True, kw_only=True)
class OldOnAllPlan(OldPlan):
    """The old tokens, on all SMs where whole sequences would leave many idle."""

    def default_tiling(self, stage: str) -> Tiling:
        tiling = super().default_tiling(stage)
        if isinstance(tiling, L2Tiling) and tiling.splits == 1:
            idle = self.room() - tiling.blocks
            if idle > self.room() // 16:
                return dataclasses.replace(tiling, blocks=self.room())
        return tiling


class NewestTogether(NewestTokens, SharedRowsKernel):
    """Up to 64 queries, whose rows both warpgroups share."""


@dataclass(frozen=True, kw_only=True)
class NewestTogetherPlan(SharedRowsPlan):
    """As ``NewestPlan``, on shared rows where the queries are few."""

    kernel = NewestTokens
    few_kernel = NewestTogether
    stage = "newest"
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"newest": RopeTiling}
