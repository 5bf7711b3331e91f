"""Plans of few-row attention: split-KV over CTAs that all run at once and merge in one launch."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.latent_plan import SlabPlan
from mla_var3.kernel.cute_python.kit.slabs import KEYS, LATENT
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.thin_l2 import LINE
from mla_var3.kernel.cute_python.kit.thin_slabs import BLOCKS, COLUMNS, GROUPS, UNIT
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteTiling, require_one_of
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

#: CTAs of a cluster; 32 clusters of four do not fit an H200 at once.
SPLITS = (1, 2)
#: Key tiles below which a CTA is not worth its merge: one per warpgroup.
MIN_TILES = GROUPS


@dataclass(frozen=True, kw_only=True)
class ThinTiling(CuteTiling):
    """How many rows a CTA holds, and how many CTAs share their keys."""

    columns: int = option(16, "rows (head, query) of a CTA: 8, 16 or 32", minimum=8)
    parts: int = option(1, "CTAs or clusters that share the keys of a row tile", minimum=1)

    @property
    def shares(self) -> dict[str, int]:
        """What the CTAs of a row tile are counted by."""
        return {"parts": self.parts}

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of(COLUMNS, columns=self.columns)
        if self.parts > 1 and isinstance(plan, ThinPlan):
            plan.require_at_once(self)


@dataclass(frozen=True, kw_only=True)
class ThinClusterTiling(ThinTiling):
    """Likewise, in clusters of one or two."""

    splits: int = option(2, "CTAs of a cluster that split the keys (1 or 2)", minimum=1)

    @property
    def shares(self) -> dict[str, int]:
        return {"splits": self.splits, "parts": self.parts}

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of(SPLITS, splits=self.splits)


@dataclass(frozen=True, kw_only=True)
class ThinPlan(SlabPlan):
    """Problem and launch by a version's ``kernel``, with ``scratch`` for what CTAs exchange."""

    kernel: ClassVar[type[Any]]
    #: Parts that are checked: as the default, or so many.
    checked: ClassVar[tuple[int | None, ...]] = (2, None, 1, 3)

    @property
    def columns(self) -> int:
        """Columns that hold the rows of a sequence, or of a row tile where they are more."""
        return next((n for n in COLUMNS if n >= self.h * self.s), COLUMNS[-1])

    def tiles_of(self, columns: int) -> int:
        """Row tiles of all sequences."""
        return -(-self.h * self.s // columns) * self.b

    def room(self, columns: int) -> int:
        """CTAs per row tile that fit the SMs and have keys to work on."""
        tiles = -(-self.t // KEYS)
        return max(min(self.target.sm_count // self.tiles_of(columns), tiles // MIN_TILES), 1)

    def require_at_once(self, tiling: ThinTiling) -> None:
        """Raise TilingError unless all CTAs that wait for each other run at once."""
        tiles, sms = self.tiles_of(tiling.columns), self.target.sm_count
        ctas = tiles
        for count in tiling.shares.values():
            ctas *= count
        if ctas > sms:
            factors = " * ".join(f"{count} {name}" for name, count in tiling.shares.items())
            raise TilingError(
                f"parts={tiling.parts} lets {tiles} row tiles * {factors} = {ctas} CTAs wait for "
                f"each other, and {sms} run at once"
            )

    def check_plans(self) -> list[Self]:
        """The shared problems, with parts as ``checked`` says."""
        return [
            plan if n is None else plan.with_parts(n)
            for plan, n in zip(super().check_plans(), itertools.cycle(self.checked), strict=False)
        ]

    def with_parts(self, parts: int) -> Self:
        """The same problem, with so many parts of its default tiling, or what the SMs take."""
        (stage,) = self.tiling_types
        tiling = self.default_tiling(stage)
        ctas = self.tiles_of(tiling.columns) * tiling.shares.get("splits", 1)
        most = self.target.sm_count // ctas
        tiling = dataclasses.replace(tiling, parts=max(min(parts, most), 1))
        return dataclasses.replace(self, tilings={stage: tiling})

    def widths(self) -> list[int]:
        """Columns worth timing."""
        return sorted({self.columns, min(2 * self.columns, COLUMNS[-1])})

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        device = inputs[0].device
        tensors = dict(zip(("q", "qpe", "z", "kpe"), inputs, strict=True))
        return self.bind(
            self.kernel.attention,
            lambda x: self.kernel(self.causal, x),
            tensors | self.scratch(device),
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.scale / LN_2,),
            self._algorithmic_flops_bytes(),
        )


@dataclass(frozen=True, kw_only=True)
class ThinClusterPlan(ThinPlan):
    """Clusters that meet through L2, by a counter per row tile."""

    def tiling_of(self, columns: int, splits: int) -> ThinClusterTiling:
        """As many parts as there is room for."""
        (kind,) = self.tiling_types.values()
        parts = max(self.room(columns) // splits, 1)
        return kind(columns=columns, splits=splits, parts=parts)

    def default_tiling(self, stage: str) -> ThinClusterTiling:
        return self.tiling_of(self.columns, min(self.room(self.columns), SPLITS[-1]))

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        sizes = itertools.product(self.widths(), SPLITS)
        configs = [self.tiling_of(columns, splits) for columns, splits in sizes]
        alone = [dataclasses.replace(x, parts=1) for x in configs]
        return {"attention": list(dict.fromkeys([*configs, *alone]))}

    def scratch(self, device: torch.device) -> dict[str, torch.Tensor]:
        """What parts write for each other, under any tiling, and the counters of their signals."""
        import torch

        ctas = self.target.sm_count
        units = ctas * BLOCKS * COLUMNS[-1] // UNIT
        return {
            "partial": self.empty(units, LATENT, device=device, fp32=True),
            "partial_lse": self.empty(ctas, COLUMNS[-1], device=device, fp32=True),
            "arrived": torch.zeros(ctas, LINE, dtype=torch.int32, device=device),
        }
