"""Latent problems over pages whose few rows are columns of the matrix instructions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.joined_plan import JoinedPlan, JoinedTiling, exchanged
from mla_var3.kernel.cute_python.kit.slabs import KEYS
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.thin_paged import ThinPagedKernel
from mla_var3.kernel.cute_python.kit.thin_slabs import COLUMNS
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import require_one_of
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class EitherTiling(JoinedTiling):
    """Whether the rows of a sequence are columns of the matrix instructions, and of how many."""

    columns: int = option(0, "rows that are columns of the products: 8, 16 or 32; 0: they are rows")

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((0, *COLUMNS), columns=self.columns)
        if self.columns and isinstance(plan, EitherPlan) and plan.tile_rows > self.columns:
            raise TilingError(
                f"columns={self.columns} are fewer than the {plan.h} * {plan.s} = "
                f"{plan.tile_rows} rows of a sequence, which one CTA holds"
            )


@dataclass(frozen=True, kw_only=True)
class EitherPlan(JoinedPlan):
    """Problem and launch: ``thin`` where the rows are few, else ``kernel``."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": EitherTiling}

    thin: ClassVar[type[ThinPagedKernel]]

    @property
    def columns(self) -> int:
        """Columns that hold the rows of a sequence; 0 where they are too many."""
        return next((n for n in COLUMNS if n >= self.tile_rows), 0)

    @property
    def share(self) -> int:
        return 1 if self.tiling("attention").columns else super().share

    def sharing(self, share: int, *, keep: bool = False) -> EitherTiling:
        """The tiling with which so many row tiles share their keys."""
        return EitherTiling(**super().sharing(share, keep=keep).values())

    def default_tiling(self, stage: str) -> Tiling:
        if not self.columns:
            return super().default_tiling(stage)
        return EitherTiling(columns=self.columns, box=min(self.page or KEYS, KEYS))

    def check_plans(self) -> list[Self]:
        """The shared problems; few rows that are cut or see no key, and more rows that are cut."""
        plans = super().check_plans()
        more = [
            # b, h, s, t, causal, lengths, page
            (3, 8, 4, 300, True, "ragged", 16),
            (2, 4, 2, 1, True, None, 64),  # rows that see no key
            (1, 8, 2, 700, False, None, 32),
            (1, 40, 1, 900, False, None, 64),  # in parts of four tiles, with a warp without rows
            (1, 64, 1, 900, False, None, 64),
        ]
        return plans + [
            dataclasses.replace(
                plans[0], b=b, h=h, s=s, t=t, causal=causal, lengths=lengths, page=page, shift=0.0
            )
            for b, h, s, t, causal, lengths, page in more
        ]

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        found = super()._autotune_configs()
        if not self.columns:
            return found
        return {"attention": [self.default_tiling("attention"), *found["attention"]]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        if not self.tiling("attention").columns:
            return super().plan(*inputs)
        names = ("q", "qpe", "z", "kpe", "table", "lengths")
        device = inputs[0].device
        scratch = exchanged(self.cuts(), 1, self.place, device)
        return self.bind(
            "attention",
            self.thin.paged_attention,
            lambda x: self.thin(x.columns, x.box),
            {**dict(zip(names, inputs, strict=True)), **scratch},
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.s if self.causal else 0, self.scale / LN_2, LN_2, float("-inf")),
            self._algorithmic_flops_bytes(),
        )
