"""Shared by all versions: plan with split count and partial results, and the reduce kernel."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import cuda.tile as ct

from mla_var3.errors import PlanError, TilingError
from mla_var3.runtime import KernelPlan, Tiling
from mla_var3.runtime.ct_kernel import (
    INV_LOG_2,
    ConstInt,
    CtKernel,
    CutileTiling,
    require_power_of_two,
)
from mla_var3.workloads import Cost, option
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

#: Above it the partial results of one row outweigh the keys that a split reads.
MAX_SPLITS = 256
#: fp32 elements that a reduce block may hold at once: 64 registers of each of its 128 threads.
MAX_REDUCE_TILE = 8192
#: Reduce blocks an SM: they only move bytes, so many of them keep more loads in flight.
REDUCE_OCCUPANCY = 8


def next_power_of_two(x: int) -> int:
    """The least power of two that is not below ``x``."""
    return 1 << (x - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class ReduceTiling(CutileTiling):
    """What a reduce block, which merges one row, holds at a time."""

    tile_k: int = option(512, "latent dimensions a block", minimum=16)
    tile_splits: int = option(4, "splits a step", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_power_of_two(tile_k=self.tile_k, tile_splits=self.tile_splits)
        if self.tile_splits * self.tile_k > MAX_REDUCE_TILE:
            raise TilingError(
                f"tile_splits*tile_k = {self.tile_splits}*{self.tile_k} = "
                f"{self.tile_splits * self.tile_k} elements exceed {MAX_REDUCE_TILE}"
            )
        if isinstance(plan, LatentProblem) and self.tile_k > plan.k:
            raise TilingError(f"tile_k={self.tile_k} exceeds k={plan.k}")


@dataclass(frozen=True, kw_only=True)
class SplitPlan(LatentProblem, KernelPlan):
    """Split count, partial results and the reduce stage, for every version of the design."""

    splits: int | None = option(
        None, "parts the keys of a sequence are cut into; by default chosen for the SMs", minimum=1
    )

    def validate(self) -> None:
        super().validate()
        if self.splits is not None and self.splits > MAX_SPLITS:
            raise PlanError(f"splits={self.splits} exceeds {MAX_SPLITS}")

    def check_plans(self) -> list[Self]:
        """The shared problems, with split counts from one to more than there are tiles."""
        counts = (3, 2, None, 4, 2, 5, None, 3, 2)
        return [
            dataclasses.replace(plan, splits=count)
            for plan, count in zip(super().check_plans(), counts, strict=True)
        ]

    def partials(self, splits: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Uninitialised fp32 partial outputs ``[b,splits,h*s,k]`` and LSEs ``[b,splits,h*s]``."""
        shape = (self.b, splits, self.h * self.s)
        o_parts = self.empty(*shape, self.k, device=device, fp32=True)
        return o_parts, self.empty(*shape, device=device, fp32=True)

    def partial_bytes(self, splits: int) -> int:
        """Bytes of the partial results, written once and read once."""
        return 4 * self.b * splits * self.h * self.s * (self.k + 1)

    def split_cost(self, splits: int) -> Cost:
        """The attention itself; partial results take the place of its output."""
        whole = self._algorithmic_flops_bytes()
        output = self.element_bytes * self.b * self.h * self.s * self.k
        return Cost(whole.flops, whole.bytes - output + self.partial_bytes(splits))

    def reduce_cost(self, splits: int) -> Cost:
        """One multiply-add for each partial element (no tensor-core work)."""
        rows = self.b * self.h * self.s
        output = rows * (self.k * self.element_bytes + 4)
        return Cost(2 * rows * splits * self.k, self.partial_bytes(splits) + output)

    def reduce_tiling(self) -> ReduceTiling:
        """Whole rows and few splits a step when there are many rows, else narrower and deeper."""
        many = self.b * self.h * self.s >= REDUCE_OCCUPANCY * self.target.sm_count
        return ReduceTiling(
            tile_k=self.k if many else min(self.k, 128),
            tile_splits=2 if many else 8,
            occupancy=REDUCE_OCCUPANCY,
        )

    def reduce_configs(self) -> list[Tiling]:
        """Reduce tilings worth timing."""
        shapes = itertools.product(sorted({min(self.k, 128), self.k}), (1, 2, 4, 8), (4, 8))
        return [ReduceTiling(tile_k=k, tile_splits=n, occupancy=o) for k, n, o in shapes]

    def reduce(
        self,
        o_parts: torch.Tensor,
        lse_parts: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
    ) -> CtKernel:
        """The stage that merges ``o_parts`` and ``lse_parts`` into ``o`` and ``lse``."""
        splits, rows = o_parts.shape[1], o_parts.shape[2]
        operands = (o_parts, lse_parts, o.flatten(1, 2), lse.flatten(1, 2))
        return CtKernel(
            reduce,
            grid_fn=lambda x: (rows, ct.cdiv(self.k, x.tile_k), self.b),
            args_fn=lambda x: (*operands, x.tile_k, x.tile_splits),
            input_tensors={"o_parts": o_parts, "lse_parts": lse_parts},
            output_tensors={"o": o, "lse": lse},
            tiling=self.tiling("reduce"),
            autotune_configs=self.reduce_configs(),
            algorithmic_flops_bytes_fn=lambda _: self.reduce_cost(splits),
            _name="reduce",
        )


@ct.kernel
def reduce(
    o_parts: ct.Array,
    lse_parts: ct.Array,
    o: ct.Array,
    lse: ct.Array,
    TILE_K: ConstInt,
    TILE_SPLITS: ConstInt,
):
    """O = sum of w_i*O_i, with w_i the softmax of the partial LSEs, in one pass over the splits.

    Grid (h*s, K tiles, b): o_parts [b,splits,h*s,K], lse_parts [b,splits,h*s]. One row a block: the
    stage multiplies no matrices, and rows beside splits in one tile made the compiler spill.
    """
    row, tile_k, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    # A finite start keeps exp2(top - new_top) defined for a row that sees no key at all.
    top = ct.full((1, 1), -1e30, ct.float32)
    total = ct.zeros((1, 1), ct.float32)
    acc = ct.zeros((1, TILE_K), ct.float32)
    for i in range(ct.cdiv(o_parts.shape[1], TILE_SPLITS)):
        part = ct.load(
            lse_parts,
            (batch, i, row),
            (1, TILE_SPLITS, 1),
            padding_mode=ct.PaddingMode.NEG_INF,
        ).reshape((TILE_SPLITS, 1))
        piece = ct.load(
            o_parts,
            (batch, i, row, tile_k),
            (1, TILE_SPLITS, 1, TILE_K),
            padding_mode=ct.PaddingMode.ZERO,
        ).reshape((TILE_SPLITS, TILE_K))
        part = part * INV_LOG_2
        new_top = ct.maximum(top, ct.max(part, axis=0, keepdims=True))
        weight = ct.exp2(part - new_top, flush_to_zero=True)
        rescale = ct.exp2(top - new_top, flush_to_zero=True)
        total = total * rescale + ct.sum(weight, axis=0, keepdims=True)
        acc = acc * rescale + ct.sum(weight * piece, axis=0, keepdims=True)
        top = new_top

    empty = total == 0.0
    out = acc * (1.0 / ct.where(empty, 1.0, total))
    ct.store(o, (batch, row, tile_k), out.astype(o.dtype).reshape((1, 1, TILE_K)))
    if tile_k == 0:
        log_sum = ct.where(empty, -float("inf"), (top + ct.log2(total)) / INV_LOG_2)
        ct.store(lse, (batch, row), log_sum)
