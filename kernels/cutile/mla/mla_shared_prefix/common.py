"""Shared by all versions: the plan with its split sizes and partial results, the combine stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import cuda.tile as ct

from mla_var3.errors import TilingError
from mla_var3.kernel.cutile.mla.mla_var6_plus.common import (
    CombineTiling,
    Partials,
    combine,
    next_power_of_two,
)
from mla_var3.runtime import KernelPlan, Tiling
from mla_var3.runtime.ct_kernel import CtKernel, CutileTiling, require_power_of_two
from mla_var3.workloads import Cost, option
from mla_var3.workloads.mla import SharedPrefixProblem

if TYPE_CHECKING:
    import torch

#: What a piece of the keys costs beside its steps of 64 keys: queries to load, a pipeline to fill,
#: and a partial result that the combine reads again.
ITEM_STEPS, PARTIAL_STEPS = 2, 3
#: The most pieces that the heuristic considers; the plan accepts more.
MAX_SPLITS = 32


def fewest_steps(blocks_of: Callable[[int], int], steps: int, sms: int) -> int:
    """The number of pieces whose waves of blocks, one block per SM, take the fewest steps.

    Args:
        blocks_of: Blocks of a launch with that many pieces.
        steps: Steps of the key loop before any split.
        sms: SMs of the device.
    """

    def duration(splits: int) -> int:
        extra = ITEM_STEPS + (PARTIAL_STEPS if splits > 1 else 0)
        return -(-blocks_of(splits) // sms) * (-(-steps // splits) + extra)

    return min(range(1, max(min(steps, MAX_SPLITS), 1) + 1), key=duration)


@dataclass(frozen=True, kw_only=True)
class PrefixTiling(CutileTiling):
    """Queries of one head that a prefix block takes, a rectangle, and the keys of a step."""

    tile_b: int = option(8, "sequences of a group per block", minimum=1)
    tile_s: int = option(16, "query tokens per block", minimum=1)
    tile_n: int = option(128, "keys per step", minimum=16)

    @property
    def rows(self) -> int:
        """Rows of the MMA."""
        return self.tile_b * self.tile_s

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_power_of_two(tile_b=self.tile_b, tile_s=self.tile_s, tile_n=self.tile_n)
        if not 16 <= self.rows <= 128:
            raise TilingError(
                f"tile_b*tile_s = {self.tile_b}*{self.tile_s} = {self.rows} rows, allowed are 16 "
                "to 128"
            )


@dataclass(frozen=True, kw_only=True)
class SharedPrefixPlan(SharedPrefixProblem, KernelPlan):
    """Splits, partial results and the combine stage, for every version of the design."""

    prefix_splits: int | None = option(
        None, "pieces the prefix is cut into; by default whole waves", minimum=1
    )
    own_splits: int | None = option(
        None, "pieces the own tokens are cut into; by default whole waves", minimum=1
    )

    def check_plans(self) -> list[Self]:
        """The shared problems, with split counts from one to more than there are tiles."""
        counts = ((None, None), (2, 3), (1, 2), (3, None), (None, 2), (2, 1), (4, 5))
        return [
            dataclasses.replace(plan, prefix_splits=one, own_splits=other)
            for plan, (one, other) in zip(super().check_plans(), counts, strict=True)
        ]

    def prefix_tiling(self) -> PrefixTiling:
        """Queries first, then sequences of the group, up to 128 rows; at least 64 fill the MMA."""
        needed = next_power_of_two(self.group_size) * next_power_of_two(self.s)
        rows = min(max(needed, 64), 128)
        tile_s = min(next_power_of_two(self.s), rows)
        return PrefixTiling(tile_b=rows // tile_s, tile_s=tile_s, tile_n=128, num_worker_warps=8)

    def prefix_configs(self) -> list[Tiling]:
        """Prefix tilings worth timing."""
        default = self.prefix_tiling()
        return [
            dataclasses.replace(default, tile_n=n, num_worker_warps=warps)
            for n in (64, 128)
            for warps in (None, 8)
        ]

    def row_tiles(self, tiling: PrefixTiling) -> int:
        """Blocks that the queries of one head of all groups take."""
        return self.groups * -(-self.group_size // tiling.tile_b) * -(-self.s // tiling.tile_s)

    def partials(self, device: torch.device, own_splits: int, prefix_splits: int) -> Partials:
        """Uninitialized partial results; a part without tokens gets a dummy of one row."""
        b, h, s = self.b, self.h, self.s

        def pair(splits: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
            shape = (splits, b, h, s) if splits else (1, 1, 1, 1)
            return (
                self.empty(*shape, width, device=device),
                self.empty(*shape, device=device, fp32=True),
            )

        return Partials(*pair(own_splits, self.k), *pair(prefix_splits, self.d))

    def by_group(self, x: torch.Tensor, splits: int = 1) -> torch.Tensor:
        """``[splits*b, ...]`` as ``[splits*groups, b/groups, ...]``."""
        return x.unflatten(0, (splits * self.groups, self.group_size))

    def combine_cost(self, own_splits: int, prefix_splits: int) -> Cost:
        """Merging the partials: each is read once, Wv once per head."""
        rows, d, k = self.b * self.h * self.s, self.d, self.k
        weights = self.h * k * d if own_splits else 0
        elements = rows * (own_splits * k + prefix_splits * d + d) + weights
        sums = 4 * rows * (own_splits + prefix_splits + 1)
        flops = 2 * rows * k * d if own_splits else 0
        return Cost(flops, self.element_bytes * elements + sums)

    def combine_tiling(self, rows: int = 64) -> CombineTiling:
        """``rows`` rows, queries first."""
        tile_s = min(next_power_of_two(self.s), rows)
        return CombineTiling(
            tile_b=rows // tile_s, tile_s=tile_s, tile_k=min(64, self.k), num_worker_warps=8
        )

    def combine_configs(self) -> list[Tiling]:
        """Combine tilings worth timing."""
        return [
            dataclasses.replace(self.combine_tiling(rows), num_worker_warps=warps)
            for rows in (64, 32, 16)
            for warps in (8, None)
        ]

    def combine(self, parts: Partials, wv: torch.Tensor, splits: tuple[int, int]) -> CtKernel:
        """The stage that multiplies latent parts with Wv and merges; ``splits`` own, prefix."""
        o = self.empty(self.b, self.h, self.s, self.d, device=wv.device)
        lse = self.empty(self.b, self.h, self.s, device=wv.device, fp32=True)
        operands: tuple[Any, ...] = (
            *(parts.o_old, parts.lse_old, parts.o_new, parts.lse_new, wv, o, lse),
            *(*splits, self.k, self.d),
        )
        return CtKernel(
            combine,
            grid_fn=lambda x: (ct.cdiv(self.b, x.tile_b) * ct.cdiv(self.s, x.tile_s), self.h),
            args_fn=lambda x: (*operands, x.tile_b, x.tile_s, x.tile_k),
            input_tensors={**dataclasses.asdict(parts), "wv": wv},
            output_tensors={"o": o, "lse": lse},
            tiling=self.tiling("combine"),
            autotune_configs=self.combine_configs(),
            algorithmic_flops_bytes_fn=lambda _: self.combine_cost(*splits),
            _name="combine",
        )
