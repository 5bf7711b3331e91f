"""Shared by all versions: cost of the latent and decompressed paths, blocks per path, combine."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import cuda.tile as ct

from mla_var3.errors import TilingError
from mla_var3.runtime import KernelPlan, Tiling
from mla_var3.runtime.ct_kernel import ConstInt, CtKernel, CutileTiling, require_power_of_two
from mla_var3.workloads import Cost, option
from mla_var3.workloads.mla import MixedProblem, SharedPrefixProblem

if TYPE_CHECKING:
    import torch

#: Names of the inputs of the attention stage, in the order of ``prepare_inputs``.
INPUT_NAMES = ("q", "q_latent", "qpe", "z", "kpe", "key", "value")
#: How far an SM may exceed its even share of the DRAM rate: half of the SMs draw nearly all of it
#: (4266 of 4597 GB/s with 66 of 132 blocks, same device and date).
DRAM_DRAW = 2.0
#: Prologue and epilogue of a work item, in steps of the key loop.
ITEM_OVERHEAD = 2
#: What one more partial costs the combine, which reads them in turn, in the same steps.
COMBINE_STEP = 1
#: The most splits the heuristic considers; the plan accepts more.
MAX_SPLITS = 32


def next_power_of_two(x: int) -> int:
    """The least power of two that is not below ``x``."""
    return 1 << (x - 1).bit_length()


def share_blocks(blocks: int, mine: float, others: float) -> int:
    """Blocks out of ``blocks`` for a path that costs ``mine`` when the other costs ``others``.

    Args:
        blocks: Blocks to share out, at least 2 when both paths cost something.
        mine: Cost of the path, in any unit.
        others: Cost of the other path, in the same unit.

    Returns:
        All or none when only one path costs anything, else 1 to ``blocks - 1``.
    """
    if not mine or not others:
        return blocks if mine else 0
    return min(max(round(blocks * mine / (mine + others)), 1), blocks - 1)


def best_splits(items: int, blocks: int, steps: int) -> int:
    """Pieces to cut each item's keys into so that ``blocks`` persistent blocks end together.

    Args:
        items: Independent items before any split.
        blocks: Blocks that work through them.
        steps: Steps of the key loop of an unsplit item.

    Returns:
        The smallest count that minimises waves times the steps of one piece, combine included.
    """

    def steps_to_the_end(splits: int) -> int:
        waves, piece = -(-items * splits // blocks), -(-steps // splits)
        return waves * (piece + ITEM_OVERHEAD) + splits * COMBINE_STEP

    return min(range(1, max(min(steps, MAX_SPLITS), 1) + 1), key=steps_to_the_end)


@dataclass(frozen=True, kw_only=True)
class CombineTiling(CutileTiling):
    """Rows of one head that a combine block merges: a batch by queries rectangle."""

    tile_b: int = option(64, "sequences a block", minimum=1)
    tile_s: int = option(1, "query tokens a block", minimum=1)
    tile_k: int = option(64, "latent dimensions a step", minimum=16)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_power_of_two(tile_b=self.tile_b, tile_s=self.tile_s, tile_k=self.tile_k)
        rows = self.tile_b * self.tile_s
        if not 16 <= rows <= 128:
            raise TilingError(
                f"tile_b*tile_s = {self.tile_b}*{self.tile_s} = {rows} rows, allowed are 16 to 128 "
                "(fewer leave the tensor cores idle)"
            )
        if isinstance(plan, MixedProblem | SharedPrefixProblem) and plan.k % self.tile_k:
            raise TilingError(f"tile_k={self.tile_k} does not divide k={plan.k}")


@dataclass(frozen=True)
class Partials:
    """Normalised partial outputs and their LSE, one a split: ``[splits,b,h,s,*]``."""

    o_old: torch.Tensor
    lse_old: torch.Tensor
    o_new: torch.Tensor
    lse_new: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class TwoPathsPlan(MixedProblem, KernelPlan):
    """Path costs and the combine stage, for every version of the design."""

    def check_plans(self) -> list[Self]:
        """The shared problems, with fewer blocks than items and with split counts of every kind."""
        counts: dict[str, tuple[Any, ...]] = {
            "blocks": (None, 6, None, 3, None, 2, 5, None, 4),
            "latent_blocks": (None, 2, None, 1, None, 1, 3, None, 1),
            "decompressed_blocks": (None, 3, None, 2, None, 1, 2, None, 1),
            "latent_splits": (None, 2, 3, None, 1, 1, None, 3, 2),
            "decompressed_splits": (2, None, 1, 3, 2, 1, None, 4, 3),
        }
        mine = [f.name for f in self.option_fields() if f.name in counts]
        return [
            dataclasses.replace(plan, **{name: counts[name][i] for name in mine})
            for i, plan in enumerate(super().check_plans())
        ]

    def latent_cost(self) -> Cost:
        """The latent path's part of ``mixed_cost``, all rotary queries counted here."""
        b, h, s, k, p, old = self.b, self.h, self.s, self.k, self.p, self.old_tokens
        if old == 0:
            return Cost(0, 0)
        if self.new_tokens == 0:
            return self.paths_cost()
        elements = b * h * s * (p + 2 * k) + b * old * (k + p)
        flops = 2 * b * h * self.pairs(last=old) * (2 * k + p)
        return Cost(flops, self.element_bytes * elements)

    def decompressed_cost(self) -> Cost:
        """The rest of ``mixed_cost``."""
        both, latent = self.paths_cost(), self.latent_cost()
        return Cost(both.flops - latent.flops, both.bytes - latent.bytes)

    def combine_cost(self, old_splits: int, new_splits: int) -> Cost:
        """Merging the partials: each is read once, Wv once a head."""
        b, h, s, d, k = self.b, self.h, self.s, self.d, self.k
        rows = b * h * s
        elements = rows * (old_splits * k + new_splits * d + d) + (h * k * d if old_splits else 0)
        flops = 2 * rows * k * d if old_splits else 0
        sums = 4 * rows * (old_splits + new_splits + 1)
        return Cost(flops, self.element_bytes * elements + sums)

    def latent_share(self, blocks: int, old_rows: int, new_rows: int) -> int:
        """Blocks out of ``blocks`` for the latent path, in proportion to the paths' cost.

        A path costs an SM its FLOPs or its bytes, whichever take longer; an SM may draw
        ``DRAM_DRAW`` times its even share of the DRAM rate.

        Args:
            blocks: Blocks to share out.
            old_rows: MMA rows of one sequence in the latent path, padding included (at least h*s).
            new_rows: Likewise in the decompressed path.
        """

        def cost(path: Cost, rows: int) -> float:
            padded = path.flops * rows / (self.h * self.s)
            return max(padded, path.bytes * self.target.ridge / DRAM_DRAW)

        return share_blocks(
            blocks,
            cost(self.latent_cost(), old_rows),
            cost(self.decompressed_cost(), new_rows),
        )

    def partials(self, device: torch.device, old_splits: int = 1, new_splits: int = 1) -> Partials:
        """Uninitialised partial results; a path without tokens gets a dummy of one row."""
        b, h, s = self.b, self.h, self.s

        def pair(splits: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
            shape = (splits, b, h, s) if splits else (1, 1, 1, 1)
            return (
                self.empty(*shape, width, device=device),
                self.empty(*shape, device=device, fp32=True),
            )

        return Partials(*pair(old_splits, self.k), *pair(new_splits, self.d))

    def combine_tiling(self, rows: int = 64) -> CombineTiling:
        """``rows`` rows, queries first; 64 of them fill the warp-group MMA of sm_90.

        8 worker warps and steps of 64 keep sm_90 from spilling at any s.
        """
        tile_s = min(next_power_of_two(self.s), rows)
        return CombineTiling(
            tile_b=rows // tile_s, tile_s=tile_s, tile_k=min(64, self.k), num_worker_warps=8
        )

    def combine_configs(self) -> list[Tiling]:
        """Combine tilings worth timing."""
        return [
            dataclasses.replace(self.combine_tiling(rows), tile_k=tile_k, num_worker_warps=warps)
            for rows in (64, 32, 16)
            for tile_k in (64, 128)
            for warps in (8, None)
            if self.k % tile_k == 0
        ]

    def combine(
        self, parts: Partials, wv: torch.Tensor, old_splits: int, new_splits: int
    ) -> CtKernel:
        """The combine stage over ``parts``; a path with 0 splits is left out."""
        o = self.empty(self.b, self.h, self.s, self.d, device=wv.device)
        lse = self.empty(self.b, self.h, self.s, device=wv.device, fp32=True)
        operands = (
            *(parts.o_old, parts.lse_old, parts.o_new, parts.lse_new, wv, o, lse),
            *(old_splits, new_splits, self.k, self.d),
        )
        return CtKernel(
            combine,
            grid_fn=lambda x: (ct.cdiv(self.b, x.tile_b) * ct.cdiv(self.s, x.tile_s), self.h),
            args_fn=lambda x: (*operands, x.tile_b, x.tile_s, x.tile_k),
            input_tensors={**dataclasses.asdict(parts), "wv": wv},
            output_tensors={"o": o, "lse": lse},
            tiling=self.tiling("combine"),
            autotune_configs=self.combine_configs(),
            algorithmic_flops_bytes_fn=lambda _: self.combine_cost(old_splits, new_splits),
            _name="combine",
        )


@ct.kernel
def combine(
    o_old: ct.Array,
    lse_old: ct.Array,
    o_new: ct.Array,
    lse_new: ct.Array,
    wv: ct.Array,
    o: ct.Array,
    lse: ct.Array,
    OLD_SPLITS: ConstInt,
    NEW_SPLITS: ConstInt,
    K: ConstInt,
    D: ConstInt,
    TILE_B: ConstInt,
    TILE_S: ConstInt,
    TILE_K: ConstInt,
):
    """O = sum of w_new*O_new + (sum of w_old*O_old) @ Wv, with weights from the partial LSEs.

    Grid (batch tiles * query tiles, h): o_old [OLD_SPLITS,b,h,s,K], o_new [NEW_SPLITS,b,h,s,D],
    wv [h,K,D]. The rows of one head over the batch share Wv, so they make up the MMA's rows even
    at s = 1.
    """
    tiles_s = ct.cdiv(o.shape[2], TILE_S)
    tile_b, tile_s, head = ct.bid(0) // tiles_s, ct.bid(0) % tiles_s, ct.bid(1)
    ROWS = TILE_B * TILE_S
    zero = ct.PaddingMode.ZERO

    # First pass over the LSEs: the running maximum and, relative to it, the sum.
    top = ct.full((ROWS, 1), -1e30, ct.float32)
    total = ct.zeros((ROWS, 1), ct.float32)
    for lses, SPLITS in ct.static_iter(((lse_old, OLD_SPLITS), (lse_new, NEW_SPLITS))):
        for i in range(SPLITS):
            part = ct.load(
                lses, (i, tile_b, head, tile_s), (1, TILE_B, 1, TILE_S), padding_mode=zero
            ).reshape((ROWS, 1))
            new_top = ct.maximum(top, part)
            total = total * ct.exp(top - new_top) + ct.exp(part - new_top)
            top = new_top
    empty = total == 0.0
    log_sum = ct.where(empty, -float("inf"), top + ct.log(ct.where(empty, 1.0, total)))
    # Subtracting 0 where no key is seen keeps each weight exp(-inf) = 0 instead of NaN.
    base = ct.where(empty, 0.0, log_sum)

    acc = ct.zeros((ROWS, D), ct.float32)
    if OLD_SPLITS > 0:
        for c in range(K // TILE_K):
            latent = ct.zeros((ROWS, TILE_K), ct.float32)
            for i in range(OLD_SPLITS):
                part = ct.load(
                    lse_old, (i, tile_b, head, tile_s), (1, TILE_B, 1, TILE_S), padding_mode=zero
                ).reshape((ROWS, 1))
                at = (i, tile_b, head, tile_s, c)
                piece = ct.load(o_old, at, (1, TILE_B, 1, TILE_S, TILE_K), padding_mode=zero)
                piece = piece.reshape((ROWS, TILE_K))
                latent = latent + ct.exp(part - base) * piece.astype(ct.float32)
            values = ct.load(wv, (head, c, 0), (1, TILE_K, D), padding_mode=zero)
            acc = ct.mma(latent.astype(wv.dtype), values.reshape((TILE_K, D)), acc)
    for i in range(NEW_SPLITS):
        part = ct.load(
            lse_new, (i, tile_b, head, tile_s), (1, TILE_B, 1, TILE_S), padding_mode=zero
        ).reshape((ROWS, 1))
        piece = ct.load(
            o_new, (i, tile_b, head, tile_s, 0), (1, TILE_B, 1, TILE_S, D), padding_mode=zero
        ).reshape((ROWS, D))
        acc = acc + ct.exp(part - base) * piece.astype(ct.float32)
    out = acc.astype(o.dtype).reshape((TILE_B, 1, TILE_S, D))
    ct.store(o, (tile_b, head, tile_s, 0), out)
    ct.store(lse, (tile_b, head, tile_s), log_sum.reshape((TILE_B, 1, TILE_S)))
