"""FlashMLA v1: head grouping: rows are heads times queries, which share each latent tile's load."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cuda.tile as ct

from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstBool, ConstFloat, ConstInt, CtKernel, TileMN
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch


#: The one launch.
STAGE = "attention"


@dataclass(frozen=True, kw_only=True)
class Plan(LatentProblem, KernelPlan):
    """Problem and launch of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: TileMN}

    def default_tiling(self, stage: str) -> Tiling:
        return TileMN()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        grid = itertools.product((16, 64, 128), (32, 64, 128))
        return {STAGE: [TileMN(tile_m=m, tile_n=n) for m, n in grid]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, qpe, z, kpe = inputs
        o, lse = self.empty_outputs(q.device)
        # Row r of a sequence is query r % s of head r // s.
        q_rows, qpe_rows, o_rows, lse_rows = (x.flatten(1, 2) for x in (q, qpe, o, lse))
        rows = self.h * self.s
        operands = (
            *(q_rows, qpe_rows, z, kpe, o_rows, lse_rows),
            *(self.scale * INV_LOG_2, self.s, self.k, self.p),
        )
        return CtKernel(
            attention,
            grid_fn=lambda x: (ct.cdiv(rows, x.tile_m), self.b),
            args_fn=lambda x: (*operands, x.tile_m, x.tile_n, self.causal),
            input_tensors={"q": q, "qpe": qpe, "z": z, "kpe": kpe},
            output_tensors={"o": o, "lse": lse},
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
        )


@ct.kernel
def attention(
    q: ct.Array,
    qpe: ct.Array,
    z: ct.Array,
    kpe: ct.Array,
    o: ct.Array,
    lse: ct.Array,
    scale_log2: ConstFloat,
    QUERIES: ConstInt,
    K: ConstInt,
    P: ConstInt,
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    CAUSAL: ConstBool,
):
    """Grid (row tiles, b): q [b,h*s,K], qpe [b,h*s,P], z [b,t,K], kpe [b,t,P]."""
    tile_r, batch = ct.bid(0), ct.bid(1)
    keys = z.shape[1]
    zero = ct.PaddingMode.ZERO
    query = ct.load(q, (batch, tile_r, 0), (1, TILE_M, K), padding_mode=zero).reshape((TILE_M, K))
    query_pe = ct.load(qpe, (batch, tile_r, 0), (1, TILE_M, P), padding_mode=zero)
    query_pe = query_pe.reshape((TILE_M, P))
    # One past the last key a row sees, bottom-right aligned. Tiles [0, full) lie below the limit
    # of every row, tiles from stop on above all of them.
    if CAUSAL:
        row = tile_r * TILE_M + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
        limit = ct.minimum(row % QUERIES + (keys - QUERIES + 1), keys)
        # A tile within one head holds queries first to last; one that crosses heads, all of them.
        first = tile_r * TILE_M % QUERIES
        last = first + TILE_M - 1
        crosses = last >= QUERIES
        first, last = ct.where(crosses, 0, first), ct.where(crosses, QUERIES - 1, last)
        full = ct.maximum(first + (keys - QUERIES + 1), 0) // TILE_N
        stop = ct.cdiv(ct.maximum(last + (keys - QUERIES + 1), 0), TILE_N)
    else:
        limit, full, stop = keys, keys // TILE_N, ct.cdiv(keys, TILE_N)

    # A finite start keeps exp2(row_max - new_max) defined for rows that see no key at all.
    row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
    row_sum = ct.zeros((TILE_M, 1), ct.float32)
    acc = ct.zeros((TILE_M, K), ct.float32)
    for masked in ct.static_iter((False, True)):
        for j in range(full if masked else 0, stop if masked else full):
            latent = ct.load(z, (batch, j, 0), (1, TILE_N, K), padding_mode=zero)
            latent = latent.reshape((TILE_N, K))
            key_pe = ct.load(kpe, (batch, j, 0), (1, TILE_N, P), padding_mode=zero)
            key_pe = key_pe.reshape((TILE_N, P))
            score = ct.zeros((TILE_M, TILE_N), ct.float32)
            score = ct.mma(query, latent.transpose(), score)
            score = ct.mma(query_pe, key_pe.transpose(), score) * scale_log2
            if masked:
                col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]  # [1, TILE_N]
                score = ct.where(col < limit, score, -float("inf"))
            new_max = ct.maximum(row_max, ct.max(score, axis=1, keepdims=True))
            weight = ct.exp2(score - new_max)
            rescale = ct.exp2(row_max - new_max)
            row_sum = row_sum * rescale + ct.sum(weight, axis=1, keepdims=True)
            acc = ct.mma(weight.astype(z.dtype), latent, acc * rescale)
            row_max = new_max

    empty = row_sum == 0.0
    out = ct.where(empty, 0.0, acc / ct.where(empty, 1.0, row_sum))
    log_sum = ct.where(empty, -float("inf"), (row_max + ct.log2(row_sum)) / INV_LOG_2)
    ct.store(o, (batch, tile_r, 0), out.astype(o.dtype).reshape((1, TILE_M, K)))
    ct.store(lse, (batch, tile_r), log_sum.reshape((1, TILE_M)))
