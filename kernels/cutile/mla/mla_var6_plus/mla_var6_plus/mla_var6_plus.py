"""MLA-var6+, base version: one block-specialised launch, half of its blocks for each path."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cuda.tile as ct

from mla_var3.kernel.cutile.mla.mla_var6_plus.common import (
    INPUT_NAMES,
    CombineTiling,
    TwoPathsPlan,
    share_blocks,
)
from mla_var3.runtime import KernelPipeline, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstBool, ConstFloat, ConstInt, CtKernel, TileMN
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Plan(TwoPathsPlan):
    """Problem and launches of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": TileMN,
        "combine": CombineTiling,
    }

    blocks: int | None = option(
        None, "blocks of the attention launch; by default one per SM", minimum=2
    )

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "combine":
            return self.combine_tiling()
        # 64 rows and 8 worker warps keep the latent accumulator in registers on sm_90.
        return TileMN(num_worker_warps=8)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        grid = itertools.product((16, 32, 64), (32, 64), (None, 8))
        attention: list[Tiling] = [
            TileMN(tile_m=m, tile_n=n, num_worker_warps=w) for m, n, w in grid
        ]
        return {"attention": attention, "combine": self.combine_configs()}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, q_latent, qpe, z, kpe, key, value, wv = inputs
        old, new = self.old_tokens, self.new_tokens
        parts = self.partials(q.device, int(old > 0), int(new > 0))
        blocks = self.blocks or self.target.sm_count
        # Equal shares, whatever each path costs: what the next version mends.
        latent_blocks = share_blocks(blocks, float(old > 0), float(new > 0))
        # Views that begin and end with their path; a path without tokens keeps one unseen token.
        kpe_old, kpe_new = kpe[:, : max(old, 1)], kpe[:, min(old, self.t - 1) :]
        operands = (
            *(q, q_latent, qpe, z, kpe_old, kpe_new, key, value),
            *(parts.o_old[0], parts.lse_old[0], parts.o_new[0], parts.lse_new[0]),
            *(self.scale * INV_LOG_2, latent_blocks, self.d, self.k, self.p),
        )
        both = CtKernel(
            attention,
            grid_fn=lambda _: (blocks,),
            args_fn=lambda x: (*operands, x.tile_m, x.tile_n, self.causal, old > 0, new > 0),
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
        combine = self.combine(parts, wv, int(old > 0), int(new > 0))
        return KernelPipeline(_name="mla_var6_plus", stages=[both, combine])


def key_tiles(first, last, seen, keys, TILE_N, CAUSAL):
    """Tiles [0, full) are seen whole by rows first to last, tiles from stop on by none of them.

    Row r sees keys 0 .. r+seen-1 of the path's own keys.
    """
    if CAUSAL:
        low = ct.maximum(ct.minimum(first + seen, keys), 0)
        high = ct.maximum(ct.minimum(last + seen, keys), 0)
        return low // TILE_N, ct.cdiv(high, TILE_N)
    return keys // TILE_N, ct.cdiv(keys, TILE_N)


def online_softmax(score, values, row_max, row_sum, acc):
    """Fold one tile of log2-scaled scores [M, N] and its values [N, *] into the running result."""
    new_max = ct.maximum(row_max, ct.max(score, axis=1, keepdims=True))
    weight = ct.exp2(score - new_max)
    rescale = ct.exp2(row_max - new_max)
    row_sum = row_sum * rescale + ct.sum(weight, axis=1, keepdims=True)
    acc = ct.mma(weight.astype(values.dtype), values, acc * rescale)
    return new_max, row_sum, acc


def normalise(row_max, row_sum, acc):
    """O [M, *] and natural LSE [M, 1]; rows without a key give 0 and -inf."""
    empty = row_sum == 0.0
    out = ct.where(empty, 0.0, acc / ct.where(empty, 1.0, row_sum))
    log_sum = ct.where(empty, -float("inf"), (row_max + ct.log2(row_sum)) / INV_LOG_2)
    return out, log_sum


@ct.kernel
def attention(
    q: ct.Array,
    q_latent: ct.Array,
    qpe: ct.Array,
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
    D: ConstInt,
    K: ConstInt,
    P: ConstInt,
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    CAUSAL: ConstBool,
    HAS_OLD: ConstBool,
    HAS_NEW: ConstBool,
):
    """Grid (blocks): the first latent_blocks take the latent path, the others the decompressed one.

    q [b,h,s,D], q_latent [b,h,s,K], qpe [b,h,s,P], z [b,o,K], kpe_old [b,o,P], kpe_new [b,n,P],
    key and value [b,n,h,D]. An item is one head of one sequence by TILE_M queries.
    """
    batches, heads, queries = q.shape[0], q.shape[1], q.shape[2]
    tiles = ct.cdiv(queries, TILE_M)
    items = batches * heads * tiles
    zero = ct.PaddingMode.ZERO

    if HAS_OLD and ct.bid(0) < latent_blocks:
        keys = z.shape[1]
        # Causal rows see all old keys but the last few, when fewer than s tokens are new.
        new = key.shape[1] if HAS_NEW else 0
        seen = keys + new - queries + 1
        for item in range(ct.bid(0), items, latent_blocks):
            tile, head, batch = item % tiles, item // tiles % heads, item // tiles // heads
            at = (batch, head, tile, 0)
            query = ct.load(q_latent, at, (1, 1, TILE_M, K), padding_mode=zero)
            query = query.reshape((TILE_M, K))
            query_pe = ct.load(qpe, at, (1, 1, TILE_M, P), padding_mode=zero)
            query_pe = query_pe.reshape((TILE_M, P))
            first = tile * TILE_M
            row = first + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
            limit = ct.minimum(row + seen, keys) if CAUSAL else keys
            last = ct.minimum(first + TILE_M, queries) - 1
            full, stop = key_tiles(first, last, seen, keys, TILE_N, CAUSAL)

            row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
            row_sum = ct.zeros((TILE_M, 1), ct.float32)
            acc = ct.zeros((TILE_M, K), ct.float32)
            for masked in ct.static_iter((False, True)):
                for j in range(full if masked else 0, stop if masked else full):
                    latent = ct.load(z, (batch, j, 0), (1, TILE_N, K), padding_mode=zero)
                    latent = latent.reshape((TILE_N, K))
                    key_pe = ct.load(kpe_old, (batch, j, 0), (1, TILE_N, P), padding_mode=zero)
                    key_pe = key_pe.reshape((TILE_N, P))
                    score = ct.zeros((TILE_M, TILE_N), ct.float32)
                    score = ct.mma(query, latent.transpose(), score)
                    score = ct.mma(query_pe, key_pe.transpose(), score) * scale_log2
                    if masked:
                        col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]
                        score = ct.where(col < limit, score, -float("inf"))
                    row_max, row_sum, acc = online_softmax(score, latent, row_max, row_sum, acc)

            out, log_sum = normalise(row_max, row_sum, acc)
            ct.store(o_old, at, out.astype(o_old.dtype).reshape((1, 1, TILE_M, K)))
            ct.store(lse_old, (batch, head, tile), log_sum.reshape((1, 1, TILE_M)))
    if HAS_NEW and ct.bid(0) >= latent_blocks:
        keys = key.shape[1]
        seen = keys - queries + 1
        for item in range(ct.bid(0) - latent_blocks, items, ct.num_blocks(0) - latent_blocks):
            tile, head, batch = item % tiles, item // tiles % heads, item // tiles // heads
            at = (batch, head, tile, 0)
            query = ct.load(q, at, (1, 1, TILE_M, D), padding_mode=zero).reshape((TILE_M, D))
            query_pe = ct.load(qpe, at, (1, 1, TILE_M, P), padding_mode=zero)
            query_pe = query_pe.reshape((TILE_M, P))
            first = tile * TILE_M
            row = first + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
            limit = ct.minimum(row + seen, keys) if CAUSAL else keys
            last = ct.minimum(first + TILE_M, queries) - 1
            full, stop = key_tiles(first, last, seen, keys, TILE_N, CAUSAL)

            row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
            row_sum = ct.zeros((TILE_M, 1), ct.float32)
            acc = ct.zeros((TILE_M, D), ct.float32)
            for masked in ct.static_iter((False, True)):
                for j in range(full if masked else 0, stop if masked else full):
                    near = (batch, j, head, 0)
                    keys_n = ct.load(key, near, (1, TILE_N, 1, D), padding_mode=zero)
                    values_n = ct.load(value, near, (1, TILE_N, 1, D), padding_mode=zero)
                    key_pe = ct.load(kpe_new, (batch, j, 0), (1, TILE_N, P), padding_mode=zero)
                    key_pe = key_pe.reshape((TILE_N, P))
                    score = ct.zeros((TILE_M, TILE_N), ct.float32)
                    score = ct.mma(query, keys_n.reshape((TILE_N, D)).transpose(), score)
                    score = ct.mma(query_pe, key_pe.transpose(), score) * scale_log2
                    if masked:
                        col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]
                        score = ct.where(col < limit, score, -float("inf"))
                    row_max, row_sum, acc = online_softmax(
                        score, values_n.reshape((TILE_N, D)), row_max, row_sum, acc
                    )

            out, log_sum = normalise(row_max, row_sum, acc)
            ct.store(o_new, at, out.astype(o_new.dtype).reshape((1, 1, TILE_M, D)))
            ct.store(lse_new, (batch, head, tile), log_sum.reshape((1, 1, TILE_M)))
