"""FlashAttention, base version: one block per head and query tile, every key tile masked."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cuda.tile as ct

from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstBool, ConstFloat, ConstInt, CtKernel, TileMN
from mla_var3.workloads.mla import DecompressedProblem

if TYPE_CHECKING:
    import torch


#: The one launch.
STAGE = "attention"


@dataclass(frozen=True, kw_only=True)
class Plan(DecompressedProblem, KernelPlan):
    """Problem and launch of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: TileMN}

    def default_tiling(self, stage: str) -> Tiling:
        return TileMN()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        grid = itertools.product((64, 128), (64, 128), (None, 8))
        return {STAGE: [TileMN(tile_m=m, tile_n=n, num_worker_warps=warps) for m, n, warps in grid]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, qpe, key, value, kpe = inputs
        o, lse = self.empty_outputs(q.device)
        operands = (q, qpe, key, value, kpe, o, lse, self.scale * INV_LOG_2, self.h, self.d, self.p)
        return CtKernel(
            attention,
            grid_fn=lambda x: (ct.cdiv(self.s, x.tile_m), self.b * self.h),
            args_fn=lambda x: (*operands, x.tile_m, x.tile_n, self.causal),
            input_tensors={"q": q, "qpe": qpe, "key": key, "value": value, "kpe": kpe},
            output_tensors={"o": o, "lse": lse},
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
        )


@ct.kernel
def attention(
    q: ct.Array,
    qpe: ct.Array,
    key: ct.Array,
    value: ct.Array,
    kpe: ct.Array,
    o: ct.Array,
    lse: ct.Array,
    scale_log2: ConstFloat,
    HEADS: ConstInt,
    D: ConstInt,
    P: ConstInt,
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    CAUSAL: ConstBool,
):
    """Grid (query tiles, b*h): q [b,h,s,D], qpe [b,h,s,P], key, value [b,t,h,D], kpe [b,t,P]."""
    tile_s, batch, head = ct.bid(0), ct.bid(1) // HEADS, ct.bid(1) % HEADS
    queries, keys = q.shape[2], key.shape[1]
    at = (batch, head, tile_s, 0)
    zero = ct.PaddingMode.ZERO
    query = ct.load(q, at, (1, 1, TILE_M, D), padding_mode=zero).reshape((TILE_M, D))
    query_pe = ct.load(qpe, at, (1, 1, TILE_M, P), padding_mode=zero).reshape((TILE_M, P))
    row = tile_s * TILE_M + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
    # One past the last key a row sees; bottom-right aligned.
    limit = ct.minimum(row + (keys - queries + 1), keys) if CAUSAL else keys

    # A finite start keeps exp2(row_max - new_max) defined for rows that see no key at all.
    row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
    row_sum = ct.zeros((TILE_M, 1), ct.float32)
    acc = ct.zeros((TILE_M, D), ct.float32)
    for j in range(ct.cdiv(keys, TILE_N)):
        key_tile = ct.load(key, (batch, j, head, 0), (1, TILE_N, 1, D), padding_mode=zero)
        key_pe = ct.load(kpe, (batch, j, 0), (1, TILE_N, P), padding_mode=zero)
        score = ct.zeros((TILE_M, TILE_N), ct.float32)
        score = ct.mma(query, key_tile.reshape((TILE_N, D)).transpose(), score)
        score = ct.mma(query_pe, key_pe.reshape((TILE_N, P)).transpose(), score) * scale_log2
        col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]  # [1, TILE_N]
        score = ct.where(col < limit, score, -float("inf"))
        new_max = ct.maximum(row_max, ct.max(score, axis=1, keepdims=True))
        weight = ct.exp2(score - new_max)
        rescale = ct.exp2(row_max - new_max)
        row_sum = row_sum * rescale + ct.sum(weight, axis=1, keepdims=True)
        row_max = new_max
        value_tile = ct.load(value, (batch, j, head, 0), (1, TILE_N, 1, D), padding_mode=zero)
        value_tile = value_tile.reshape((TILE_N, D))
        acc = ct.mma(weight.astype(value.dtype), value_tile, acc * rescale)

    empty = row_sum == 0.0
    out = ct.where(empty, 0.0, acc / ct.where(empty, 1.0, row_sum))
    log_sum = ct.where(empty, -float("inf"), (row_max + ct.log2(row_sum)) / INV_LOG_2)
    ct.store(o, at, out.astype(o.dtype).reshape((1, 1, TILE_M, D)))
    ct.store(lse, (batch, head, tile_s), log_sum.reshape((1, 1, TILE_M)))
