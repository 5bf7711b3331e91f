"""MLA-var6+ v3: a tile size for each path; the decompressed one puts keys on the MMA's rows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cuda.tile as ct

from mla_var3.errors import PlanError
from mla_var3.kernel.cutile.mla.mla_var6_plus.common import (
    INPUT_NAMES,
    CombineTiling,
    TwoPathsPlan,
    best_splits,
    next_power_of_two,
)
from mla_var3.kernel.cutile.mla.mla_var6_plus.steps import key_tiles, normalise
from mla_var3.runtime import KernelPipeline, KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import (
    INV_LOG_2,
    ConstBool,
    ConstFloat,
    ConstInt,
    CtKernel,
    CutileTiling,
    require_tile,
)
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

#: Default tiles, which the heuristics reckon with: 64 rows and 8 worker warps keep the latent
#: accumulator in registers on sm_90.
ROW_TILE, OLD_KEY_TILE, NEW_KEY_TILE = 64, 64, 128


@dataclass(frozen=True, kw_only=True)
class AttentionTiling(CutileTiling):
    """Rows and keys that a block of each path handles at a time."""

    old_tile_m: int = option(ROW_TILE, "latent rows (heads times queries) a block", minimum=16)
    old_tile_n: int = option(OLD_KEY_TILE, "old keys a step", minimum=16)
    new_tile_m: int = option(16, "decompressed queries a block (MMA columns)", minimum=16)
    new_tile_n: int = option(NEW_KEY_TILE, "new keys a step (MMA rows)", minimum=64)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        for path in ("old", "new"):
            tile_m, tile_n = getattr(self, f"{path}_tile_m"), getattr(self, f"{path}_tile_n")
            require_tile(**{f"{path}_tile_m": tile_m, f"{path}_tile_n": tile_n})


@dataclass(frozen=True, kw_only=True)
class Plan(TwoPathsPlan):
    """Problem and launches of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": AttentionTiling,
        "combine": CombineTiling,
    }

    blocks: int | None = option(
        None, "blocks of the attention launch; by default one per SM", minimum=2
    )
    latent_blocks: int | None = option(
        None, "those of them on the latent path; by default its share of the cost", minimum=1
    )
    latent_splits: int | None = option(
        None, "pieces the old tokens are cut into; by default whole waves", minimum=1
    )
    decompressed_splits: int | None = option(
        None, "pieces the new tokens are cut into; by default whole waves", minimum=1
    )

    def validate(self) -> None:
        super().validate()
        blocks = self.blocks or self.target.sm_count
        if self.latent_blocks is not None and self.latent_blocks >= blocks:
            raise PlanError(
                f"latent_blocks={self.latent_blocks} leaves none of {blocks} blocks to the "
                "decompressed path"
            )

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "combine":
            return self.combine_tiling()
        return AttentionTiling(new_tile_m=self.query_tile(), num_worker_warps=8)

    def query_tile(self) -> int:
        """Queries of one head a decompressed item takes: all, from 16 to 64."""
        return min(max(next_power_of_two(self.s), 16), 64)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        grid = itertools.product((32, 64), (64, 128), (None, 8))
        attention: list[Tiling] = [
            dataclasses.replace(
                self.default_tiling("attention"),
                **{"old_tile_n": old_n, "new_tile_n": new_n, "num_worker_warps": warps},
            )
            for old_n, new_n, warps in grid
        ]
        return {"attention": attention, "combine": self.combine_configs()}

    def shares(self) -> tuple[int, int]:
        """Blocks of the latent and of the decompressed path."""
        blocks = self.blocks or self.target.sm_count
        old_rows = -(-self.h * self.s // ROW_TILE) * ROW_TILE
        new_rows = -(-self.s // self.query_tile()) * self.query_tile() * self.h
        latent = self.latent_share(blocks, old_rows, new_rows)
        if self.latent_blocks and 0 < latent < blocks:
            latent = self.latent_blocks
        return latent, blocks - latent

    def splits(self) -> tuple[int, int]:
        """Splits of the old and of the new tokens; 0 for a path without tokens."""
        latent_blocks, decompressed_blocks = self.shares()
        old = new = 0
        if self.old_tokens:
            items = self.b * -(-self.h * self.s // ROW_TILE)
            steps = -(-self.old_tokens // OLD_KEY_TILE)
            old = self.latent_splits or best_splits(items, latent_blocks, steps)
        if self.new_tokens:
            items = self.b * self.h * -(-self.s // self.query_tile())
            steps = -(-self.new_tokens // NEW_KEY_TILE)
            new = self.decompressed_splits or best_splits(items, decompressed_blocks, steps)
        return old, new

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, q_latent, qpe, z, kpe, key, value, wv = inputs
        old, new = self.old_tokens, self.new_tokens
        old_splits, new_splits = self.splits()
        parts = self.partials(q.device, old_splits, new_splits)
        latent_blocks, decompressed_blocks = self.shares()
        # Views that begin and end with their path; a path without tokens keeps one unseen token.
        kpe_old, kpe_new = kpe[:, : max(old, 1)], kpe[:, min(old, self.t - 1) :]
        # Row r of a sequence is query r % s of head r // s.
        q_rows, qpe_rows = q_latent.flatten(1, 2), qpe.flatten(1, 2)
        o_rows, lse_rows = parts.o_old.flatten(2, 3), parts.lse_old.flatten(2, 3)
        operands = (
            *(q, q_rows, qpe, qpe_rows, z, kpe_old, kpe_new, key, value),
            *(o_rows, lse_rows, parts.o_new, parts.lse_new),
            *(self.scale * INV_LOG_2, latent_blocks, self.s, self.d, self.k, self.p),
        )
        both = CtKernel(
            attention,
            grid_fn=lambda _: (latent_blocks + decompressed_blocks,),
            args_fn=lambda x: (
                *operands,
                *(x.old_tile_m, x.old_tile_n, x.new_tile_m, x.new_tile_n),
                *(self.causal, old > 0, new > 0),
            ),
            input_tensors=dict(zip(INPUT_NAMES, inputs[:-1], strict=True)),
            output_tensors={
                **({"o_old": parts.o_old, "lse_old": parts.lse_old} if old else {}),
                **({"o_new": parts.o_new, "lse_new": parts.lse_new} if new else {}),
            },
            tiling=self.tiling("attention"),
            autotune_configs=self._autotune_configs()["attention"],
            algorithmic_flops_bytes_fn=lambda _: self.paths_cost(),
            _name="attention",
        )
        combine = self.combine(parts, wv, old_splits, new_splits)
        return KernelPipeline(_name="mla_var6_plus", stages=[both, combine])


@ct.kernel
def attention(
    q: ct.Array,
    q_rows: ct.Array,
    qpe: ct.Array,
    qpe_rows: ct.Array,
    z: ct.Array,
    kpe_old: ct.Array,
    kpe_new: ct.Array,
    key: ct.Array,
    value: ct.Array,
    o_old: ct.Array,
    lse_old: ct.Array,
    o_new: ct.Array,
    lse_new: ct.Array,
    scale_log2: ConstFloat,
    latent_blocks,
    QUERIES: ConstInt,
    D: ConstInt,
    K: ConstInt,
    P: ConstInt,
    OLD_TILE_M: ConstInt,
    OLD_TILE_N: ConstInt,
    NEW_TILE_M: ConstInt,
    NEW_TILE_N: ConstInt,
    CAUSAL: ConstBool,
    HAS_OLD: ConstBool,
    HAS_NEW: ConstBool,
):
    """Grid (blocks): the first latent_blocks take the latent path, the others the decompressed one.

    q [b,h,s,D], q_rows [b,h*s,K], qpe [b,h,s,P], qpe_rows [b,h*s,P], z [b,o,K], kpe_old [b,o,P],
    kpe_new [b,n,P], key and value [b,n,h,D], o_old [splits,b,h*s,K], o_new [splits,b,h,s,D]. A
    latent item is a tile of rows (row r: head r // s, query r % s) by a split of the old tokens, a
    decompressed item a tile of one head's queries by a split of the new ones.
    """
    batches, heads = q.shape[0], q.shape[1]
    zero = ct.PaddingMode.ZERO

    if HAS_OLD and ct.bid(0) < latent_blocks:
        keys, splits = z.shape[1], o_old.shape[0]
        # Causal rows see all old keys but the last few, when fewer than s tokens are new.
        new = key.shape[1] if HAS_NEW else 0
        seen = keys + new - QUERIES + 1
        tiles = ct.cdiv(q_rows.shape[1], OLD_TILE_M)
        steps = ct.cdiv(ct.cdiv(keys, OLD_TILE_N), splits)
        # Row tiles come first, so that neighbouring blocks read the same keys through L2.
        for item in range(ct.bid(0), tiles * splits * batches, latent_blocks):
            tile, split, batch = item % tiles, item // tiles % splits, item // tiles // splits
            query = ct.load(q_rows, (batch, tile, 0), (1, OLD_TILE_M, K), padding_mode=zero)
            query = query.reshape((OLD_TILE_M, K))
            query_pe = ct.load(qpe_rows, (batch, tile, 0), (1, OLD_TILE_M, P), padding_mode=zero)
            query_pe = query_pe.reshape((OLD_TILE_M, P))
            row = tile * OLD_TILE_M + ct.arange(OLD_TILE_M, dtype=ct.int32)[:, None]
            limit = ct.minimum(row % QUERIES + seen, keys) if CAUSAL else keys
            # A tile within one head holds queries first to last; one across heads may hold any.
            first = tile * OLD_TILE_M % QUERIES
            last = first + OLD_TILE_M - 1
            crosses = last >= QUERIES
            first, last = ct.where(crosses, 0, first), ct.where(crosses, QUERIES - 1, last)
            full, stop = key_tiles(first, last, seen, keys, OLD_TILE_N, CAUSAL)
            begin = split * steps
            end = ct.minimum(begin + steps, stop)
            middle = ct.maximum(ct.minimum(full, end), begin)

            row_max = ct.full((OLD_TILE_M, 1), -1e30, ct.float32)
            row_sum = ct.zeros((OLD_TILE_M, 1), ct.float32)
            acc = ct.zeros((OLD_TILE_M, K), ct.float32)
            for masked in ct.static_iter((False, True)):
                for j in range(middle if masked else begin, end if masked else middle):
                    latent = ct.load(z, (batch, j, 0), (1, OLD_TILE_N, K), padding_mode=zero)
                    latent = latent.reshape((OLD_TILE_N, K))
                    key_pe = ct.load(kpe_old, (batch, j, 0), (1, OLD_TILE_N, P), padding_mode=zero)
                    key_pe = key_pe.reshape((OLD_TILE_N, P))
                    score = ct.zeros((OLD_TILE_M, OLD_TILE_N), ct.float32)
                    score = ct.mma(query, latent.transpose(), score)
                    score = ct.mma(query_pe, key_pe.transpose(), score) * scale_log2
                    if masked:
                        col = j * OLD_TILE_N + ct.arange(OLD_TILE_N, dtype=ct.int32)[None, :]
                        score = ct.where(col < limit, score, -float("inf"))
                    new_max = ct.maximum(row_max, ct.max(score, axis=1, keepdims=True))
                    weight = ct.exp2(score - new_max)
                    rescale = ct.exp2(row_max - new_max)
                    row_sum = row_sum * rescale + ct.sum(weight, axis=1, keepdims=True)
                    acc = ct.mma(weight.astype(z.dtype), latent, acc * rescale)
                    row_max = new_max

            out, log_sum = normalise(row_max, row_sum, acc)
            out = out.astype(o_old.dtype).reshape((1, 1, OLD_TILE_M, K))
            ct.store(o_old, (split, batch, tile, 0), out)
            ct.store(lse_old, (split, batch, tile), log_sum.reshape((1, 1, OLD_TILE_M)))
    if HAS_NEW and ct.bid(0) >= latent_blocks:
        # Scores and outputs are held transposed, [keys, queries] and [D, queries]: a head has too
        # few queries to fill the rows of an MMA, keys and D fill them always.
        keys, splits = key.shape[1], o_new.shape[0]
        seen = keys - QUERIES + 1
        tiles = ct.cdiv(QUERIES, NEW_TILE_M)
        steps = ct.cdiv(ct.cdiv(keys, NEW_TILE_N), splits)
        for item in range(
            ct.bid(0) - latent_blocks,
            tiles * heads * splits * batches,
            ct.num_blocks(0) - latent_blocks,
        ):
            tile, head = item % tiles, item // tiles % heads
            split, batch = item // tiles // heads % splits, item // tiles // heads // splits
            at = (batch, head, tile, 0)
            query = ct.load(q, at, (1, 1, NEW_TILE_M, D), padding_mode=zero)
            query = query.reshape((NEW_TILE_M, D)).transpose()
            query_pe = ct.load(qpe, at, (1, 1, NEW_TILE_M, P), padding_mode=zero)
            query_pe = query_pe.reshape((NEW_TILE_M, P)).transpose()
            first = tile * NEW_TILE_M
            row = first + ct.arange(NEW_TILE_M, dtype=ct.int32)[None, :]  # [1, NEW_TILE_M]
            limit = ct.minimum(row + seen, keys) if CAUSAL else keys
            last = ct.minimum(first + NEW_TILE_M, QUERIES) - 1
            full, stop = key_tiles(first, last, seen, keys, NEW_TILE_N, CAUSAL)
            begin = split * steps
            end = ct.minimum(begin + steps, stop)
            middle = ct.maximum(ct.minimum(full, end), begin)

            row_max = ct.full((1, NEW_TILE_M), -1e30, ct.float32)
            row_sum = ct.zeros((1, NEW_TILE_M), ct.float32)
            acc = ct.zeros((D, NEW_TILE_M), ct.float32)
            for masked in ct.static_iter((False, True)):
                for j in range(middle if masked else begin, end if masked else middle):
                    near = (batch, j, head, 0)
                    keys_n = ct.load(key, near, (1, NEW_TILE_N, 1, D), padding_mode=zero)
                    values_n = ct.load(value, near, (1, NEW_TILE_N, 1, D), padding_mode=zero)
                    key_pe = ct.load(kpe_new, (batch, j, 0), (1, NEW_TILE_N, P), padding_mode=zero)
                    score = ct.zeros((NEW_TILE_N, NEW_TILE_M), ct.float32)
                    score = ct.mma(keys_n.reshape((NEW_TILE_N, D)), query, score)
                    score = ct.mma(key_pe.reshape((NEW_TILE_N, P)), query_pe, score) * scale_log2
                    if masked:
                        col = j * NEW_TILE_N + ct.arange(NEW_TILE_N, dtype=ct.int32)[:, None]
                        score = ct.where(col < limit, score, -float("inf"))
                    new_max = ct.maximum(row_max, ct.max(score, axis=0, keepdims=True))
                    weight = ct.exp2(score - new_max)
                    rescale = ct.exp2(row_max - new_max)
                    row_sum = row_sum * rescale + ct.sum(weight, axis=0, keepdims=True)
                    values_t = values_n.reshape((NEW_TILE_N, D)).transpose()  # [D, NEW_TILE_N]
                    acc = ct.mma(values_t, weight.astype(value.dtype), acc * rescale)
                    row_max = new_max

            out, log_sum = normalise(row_max, row_sum, acc)
            out = out.transpose().astype(o_new.dtype).reshape((1, 1, 1, NEW_TILE_M, D))
            ct.store(o_new, (split, batch, head, tile, 0), out)
            ct.store(lse_new, (split, batch, head, tile), log_sum.reshape((1, 1, 1, NEW_TILE_M)))
