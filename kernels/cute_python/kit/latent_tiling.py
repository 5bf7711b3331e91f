"""Tilings of latent attention: threshold of lazy rescaling, and how CTAs share or split keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mla_var3.errors import TilingError
from mla_var3.runtime import KernelPlan
from mla_var3.runtime.cute_kernel import CuteTiling, require_multiple, require_one_of
from mla_var3.workloads import option

#: Largest lag of the running maximum: weights of up to 2**15 still fit fp16.
MAX_LAZY = 15
#: CTAs of the largest cluster.
MAX_CLUSTER = 4


@dataclass(frozen=True, kw_only=True)
class LazyTiling(CuteTiling):
    """How far the running maximum may lag."""

    lazy: float = option(0.0, "log2 by which a row's maximum may lag behind; 0 is exact", minimum=0)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        if self.lazy > MAX_LAZY:
            raise TilingError(f"lazy={self.lazy} exceeds {MAX_LAZY}: fp16 weights would overflow")


@dataclass(frozen=True, kw_only=True)
class PairTiling(LazyTiling):
    """How far the running maximum may lag, and what the two CTAs of a cluster share or split."""

    splits: int = option(1, "CTAs of a cluster that split the keys of 64 rows (1 or 2)", minimum=1)
    share: int = option(1, "row tiles of a cluster that share their keys (1 or 2)", minimum=1)
    blocks: int = option(132, "persistent CTAs", minimum=2)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((1, 2), splits=self.splits, share=self.share)
        require_multiple(2, blocks=self.blocks)
        if self.splits * self.share > 2:
            raise TilingError(f"splits*share = {self.splits}*{self.share} exceeds 2 CTAs")
        require_room(self, plan, self.blocks, "blocks")


@dataclass(frozen=True, kw_only=True)
class ClusterTiling(LazyTiling):
    """The same for clusters of up to four, which may share and split."""

    splits: int = option(1, "CTAs of a cluster that split the keys of 64 rows (1 or 2)", minimum=1)
    share: int = option(1, "row tiles of a cluster that share their keys (1, 2 or 4)", minimum=1)
    blocks: int = option(132, "persistent CTAs", minimum=2)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((1, 2), splits=self.splits)
        require_one_of((1, 2, 4), share=self.share)
        if self.splits * self.share > MAX_CLUSTER:
            raise TilingError(
                f"splits*share = {self.splits}*{self.share} exceeds {MAX_CLUSTER} CTAs"
            )
        require_multiple(self.splits * self.share, blocks=self.blocks)
        require_room(self, plan, self.blocks, "blocks")


@dataclass(frozen=True, kw_only=True)
class L2Tiling(LazyTiling):
    """The same where the CTAs that split keys are in clusters of their own."""

    splits: int = option(1, "CTAs that split the keys of 64 rows (1 or 2)", minimum=1)
    share: int = option(1, "row tiles of a cluster that share their keys (1 or 2)", minimum=1)
    blocks: int = option(132, "persistent CTAs", minimum=2)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((1, 2), splits=self.splits, share=self.share)
        require_multiple(2, blocks=self.blocks)
        # CTAs that wait for one that has not started would do so forever.
        sms = plan.room() if hasattr(plan, "room") else self.blocks
        require_room(self, plan, min(self.blocks, sms), "blocks and SMs")


def require_room(tiling: Any, plan: Any, room: int, where: str) -> None:
    """Raise TilingError where CTAs that split keys would not all run at once.

    Args:
        tiling: With ``splits`` and ``share``.
        plan: The plan; one that knows no ``blocks`` of a tiling is not asked.
        room: CTAs that run at once.
        where: What says so.
    """
    if tiling.splits == 1 or not hasattr(plan, "blocks"):
        return
    if plan.invariant:
        raise TilingError("splits=2 merges in another order, and invariant asks for one")
    blocks = plan.blocks(tiling.splits, tiling.share)
    if blocks > room:
        raise TilingError(
            f"splits={tiling.splits} and share={tiling.share} take {blocks} CTAs at once, more "
            f"than the {room} of {where}"
        )
