"""Latent problems over pages in an order that fits the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.kernel.cute_python.kit.fitted import Fitted
from mla_var3.kernel.cute_python.kit.joined_plan import exchanged
from mla_var3.kernel.cute_python.kit.ordered import order_rows
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.thin_paged_plan import EitherPlan
from mla_var3.runtime import RuntimeObject

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class OrderedPlan(EitherPlan):
    """Problem and launch: ``thin`` where the rows are few, else ``kernel``."""

    schedule: ClassVar[Fitted]
    ordered = True

    def scratch(self, device: torch.device) -> dict[str, torch.Tensor]:
        """Schedule, and what workers tell each other through, by the names of parameters."""
        import torch

        rows, tiles = self.cuts(), self.groups(self.share) * self.share
        workers = rows[: len(rows) - order_rows(self.b)]
        made = exchanged(workers, tiles, self.place, device)
        return {**made, "cuts": torch.tensor(rows, dtype=torch.int32).to(device)}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        tiling, device = self.tiling("attention"), inputs[0].device
        thin = tiling.columns > 0
        names = ("q", "qpe", "z", "kpe", "table", "lengths")
        return self.bind(
            "attention",
            (self.thin if thin else self.kernel).paged_attention,
            lambda x: (
                self.thin(x.columns, x.box)
                if x.columns
                else self.kernel(x.lazy, x.share, x.box, x.keep)
            ),
            {
                **dict(zip(names, inputs, strict=True)),
                **self.scratch(device),
            },
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.s if self.causal else 0, self.scale / LN_2, LN_2, float("-inf")),
            self._algorithmic_flops_bytes(),
        )
