"""The two ends of v1: the old tokens on all SMs, the newest by flash_attention v1."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mla_var3.kernel.cute_python.mla.flash_attention.flash_attention_v1.flash_attention_v1 import (
    Plan as NewestBase,
)
from mla_var3.kernel.cute_python.mla.flash_attention.flash_attention_v1.flash_attention_v1 import (
    Together,
)
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v12.flash_mla_v12 import FlashMlaV12Tiling
from mla_var3.kernel.cute_python.mla.mla_shared_prefix.prefix import Prefix
from mla_var3.kernel.cute_python.mla.mla_var6_plus.parts import NewestTokens, OldPlan, with_host
from mla_var3.runtime import RuntimeObject, Tiling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class OldOnAllPlan(OldPlan):
    """The old tokens, on all SMs where whole sequences would leave many idle."""

    def default_tiling(self, stage: str) -> Tiling:
        tiling = super().default_tiling(stage)
        if isinstance(tiling, FlashMlaV12Tiling) and tiling.splits == 1:
            idle = self.room - tiling.blocks
            if idle > self.room // 16:
                return dataclasses.replace(tiling, blocks=self.room)
        return tiling


@dataclass(frozen=True, kw_only=True)
class NewestTogetherPlan(NewestBase):
    """flash_attention v1; kpe may be a view of the end of a longer context."""

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        kernel = super().plan(*inputs)
        kernel.name = "newest"
        return with_host(kernel, newest)


def newest(like: Prefix) -> Prefix:
    """A host of flash_attention v1, for keys whose position parts lie apart by sequence."""
    if isinstance(like, Together):
        return NewestTogether(like.shape, like.blocks, warps=like.warps)
    return NewestTokens(like.shape, like.blocks)


class NewestTogether(NewestTokens, Together):
    """That of up to 64 queries."""
