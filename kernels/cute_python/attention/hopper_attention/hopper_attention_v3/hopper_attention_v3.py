"""Hopper attention v3: persistent CTAs take work item after work item (kernel: kit/turns.py).

One CTA per SM takes item after item. The next item's keys and values land under the last steps and
the store of this one. Under a mask, items differ in length: there each has a CTA of its own, long
ones of a head first, since the hardware's own order balances better than a fixed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mla_var3.kernel.cute_python.kit.head_items import Shape
from mla_var3.kernel.cute_python.kit.head_plan import HeadPlan, RingTiling
from mla_var3.kernel.cute_python.kit.turns import TurnKernel
from mla_var3.workloads import option


@dataclass(frozen=True, kw_only=True)
class Tiling(RingTiling):
    """Ring, and how many blocks stay."""

    blocks: int | None = option(
        None, "persistent CTAs; by default one per SM, under a mask one per item", minimum=1
    )


class Kernel(TurnKernel):
    """Products in turn; items in turn where ``blocks`` are fewer."""


@dataclass(frozen=True, kw_only=True)
class Plan(HeadPlan):
    """Problem and launch."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}

    def host(self, tiling: Tiling) -> Kernel:
        shape = Shape(self.d, self.d, tiling.keys, tiling.stages, self.causal)
        return Kernel(shape, tiling.blocks or (None if self.causal else self.target.sm_count))
