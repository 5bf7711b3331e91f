"""Latent problems over pages in one launch: workers merge what they share of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.kernel.cute_python.kit.even import COLUMNS, Even
from mla_var3.kernel.cute_python.kit.joined import JoinedKernel
from mla_var3.kernel.cute_python.kit.l2 import PLACE, SIGNALS
from mla_var3.kernel.cute_python.kit.paged_plan import PagedPlan, PagedTiling
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch


def exchanged(
    rows: Sequence[tuple[int, ...]], tiles: int, place: int, device: torch.device
) -> dict[str, torch.Tensor]:
    """What workers tell each other through, and the cuts, by the names of parameters.

    Args:
        rows: Cuts.
        tiles: Row tiles of a worker.
        place: Room in fp32 of half a part.
        device: Where it lies.
    """
    import torch

    # Made once per decoding step, for all layers: not a part of what is timed.
    cuts = torch.zeros(len(rows), COLUMNS, dtype=torch.int32)
    cuts[:, : len(rows[0])] = torch.tensor(rows, dtype=torch.int32)
    count = 4 * len(rows) * tiles
    return {
        "cuts": cuts.to(device),
        "places": torch.zeros(count, place, dtype=torch.float32, device=device),
        "signals": torch.zeros(count, SIGNALS, dtype=torch.int32, device=device),
    }


@dataclass(frozen=True, kw_only=True)
class JoinedTiling(PagedTiling):
    """What CTAs share and load at once, and what L2 keeps of it."""

    keep: bool = option(False, "whether L2 keeps keys as long as anything else")


@dataclass(frozen=True, kw_only=True)
class JoinedPlan(PagedPlan):
    """Problem and launch; ``kernel`` is the version's."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": JoinedTiling}

    kernel: ClassVar[type[JoinedKernel]]
    schedule = Even(4)
    #: Room in fp32 of half a part.
    place: ClassVar[int] = PLACE

    def default_tiling(self, stage: str) -> Tiling:
        return self.sharing(min(self.row_tiles, 2))

    def sharing(self, share: int, *, keep: bool = False) -> JoinedTiling:
        """The tiling with which so many row tiles share their keys."""
        return JoinedTiling(**super().sharing(share).values(), keep=keep)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        shares = range(1, min(self.row_tiles, 2) + 1)
        tilings = [self.sharing(n, keep=keep) for n in shares for keep in (False, True)]
        return {"attention": tilings}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        names = ("q", "qpe", "z", "kpe", "table", "lengths")
        tiles, device = self.groups(self.share) * self.share, inputs[0].device
        scratch = exchanged(self.cuts(), tiles, self.place, device)
        return self.bind(
            "attention",
            self.kernel.paged_attention,
            lambda x: self.kernel(x.lazy, x.share, x.box, x.keep),
            {**dict(zip(names, inputs, strict=True)), **scratch},
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.s if self.causal else 0, self.scale / LN_2, LN_2, float("-inf")),
            self._algorithmic_flops_bytes(),
        )
