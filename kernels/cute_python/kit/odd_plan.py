"""Latent problems over pages whose row tiles share keys in pairs, also where one is left over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.kernel.cute_python.kit.finer import Finer
from mla_var3.kernel.cute_python.kit.joined_plan import exchanged
from mla_var3.kernel.cute_python.kit.odd_tiles import PairsKernel
from mla_var3.kernel.cute_python.kit.slabs import KEYS
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.thin_paged_plan import EitherPlan
from mla_var3.runtime import RuntimeObject

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class OddPlan(EitherPlan):
    """Problem and launch: ``thin`` where the rows are few, ``odd`` where a pair lacks a tile."""

    odd: ClassVar[type[PairsKernel]]
    schedule: ClassVar[Finer]

    @property
    def leftover(self) -> bool:
        """Whether CTAs share keys, and one row tile has no other."""
        return self.share > 1 and self.row_tiles % 2 == 1

    def workers(self, tiles: int) -> int:
        """As many workers as a call has, however few the tiles are."""
        ctas = self.row_tiles if self.leftover else self.share * self.groups(self.share)
        return max(self.target.sm_count // ctas, 1)

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        if not self.leftover:
            return super().plan(*inputs)
        names = ("q", "qpe", "z", "kpe", "table", "lengths")
        tiles, device = self.groups(self.share) * self.share, inputs[0].device
        single = min(self.page or KEYS, KEYS)
        return self.bind(
            "attention",
            self.odd.paged_attention,
            lambda x: (
                self.odd(x.lazy, x.box, single, x.keep)
                if x.share > 1
                else self.kernel(x.lazy, x.share, x.box, x.keep)
            ),
            {
                **dict(zip(names, inputs, strict=True)),
                **exchanged(self.cuts(), tiles, self.place, device),
            },
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.s if self.causal else 0, self.scale / LN_2, LN_2, float("-inf")),
            self._algorithmic_flops_bytes(),
        )
