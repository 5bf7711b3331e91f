"""Hopper GEMM v3: persistent CTAs take tiles in groups that share L2 (kit/gemm_persistent.py).

The producer loads the next tile's first steps while the consumers store the last one's C. Tiles are
handed out in groups of ``group_m`` rows, so that those in flight share rows of A and of B.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mla_var3.kernel.cute_python.kit.gemm_persistent import PersistentGemm
from mla_var3.kernel.cute_python.kit.gemm_plan import GemmPlan, StagesTiling
from mla_var3.runtime import Tiling as AnyTiling
from mla_var3.workloads import option


@dataclass(frozen=True, kw_only=True)
class Tiling(StagesTiling):
    """How far loads run ahead, how many blocks stay, and the order of tiles."""

    blocks: int | None = option(None, "persistent CTAs; by default one per SM", minimum=1)
    group_m: int = option(16, "row tiles whose columns are walked through together", minimum=1)


class Kernel(PersistentGemm):
    """A CTA per SM."""


@dataclass(frozen=True, kw_only=True)
class Plan(GemmPlan):
    """Problem and launch."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[AnyTiling]]] = {"gemm": Tiling}

    def _autotune_configs(self) -> dict[str, list[AnyTiling]]:
        return {"gemm": [Tiling(group_m=rows) for rows in (4, 8, 16, 32)]}

    def host(self, tiling: Tiling) -> Kernel:
        return Kernel(tiling.stages, tiling.blocks or self.target.sm_count, tiling.group_m)
