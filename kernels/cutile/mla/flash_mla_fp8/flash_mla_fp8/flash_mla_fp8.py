"""FlashMLA with an fp8 cache, base: split-KV; each latent tile is dequantized once, for K and V."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import cuda.tile as ct

from mla_var3.kernel.cutile.mla.flash_mla_split_kv.common import MAX_SPLITS, ReduceTiling, SplitPlan
from mla_var3.runtime import KernelPipeline, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstBool, ConstFloat, ConstInt, CtKernel, TileMN
from mla_var3.workloads.mla import FP8_GROUP, Fp8LatentProblem

if TYPE_CHECKING:
    import torch

#: What a block costs beyond its steps, and what its partial result costs, in steps.
BLOCK_STEPS, PARTIAL_STEPS = 2, 4


@dataclass(frozen=True, kw_only=True)
class Plan(Fp8LatentProblem, SplitPlan):
    """Problem and launches of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"split": TileMN, "reduce": ReduceTiling}

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "reduce":
            return self.reduce_tiling()
        # A tile of 64 keys, held in registers while it is scaled, makes sm_90 spill.
        return TileMN(tile_m=64, tile_n=32, num_worker_warps=8)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        shapes = ((64, 32), (64, 16), (128, 32))
        return {
            "split": [TileMN(tile_m=m, tile_n=n, num_worker_warps=8) for m, n in shapes],
            "reduce": self.reduce_configs(),
        }

    def split_count(self) -> int:
        """The user's, else the count whose waves of blocks, one per SM, take the fewest steps."""
        if self.splits is not None:
            return self.splits
        tiling, sms = cast(TileMN, self.tiling("split")), self.target.sm_count
        blocks = ct.cdiv(self.h * self.s, tiling.tile_m) * self.b
        steps = ct.cdiv(self.t, tiling.tile_n)

        def duration(splits: int) -> int:
            extra = BLOCK_STEPS + (PARTIAL_STEPS if splits > 1 else 0)
            return ct.cdiv(blocks * splits, sms) * (ct.cdiv(steps, splits) + extra)

        return min(range(1, min(steps, MAX_SPLITS) + 1), key=duration)

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, qpe, cache = inputs
        o, lse = self.empty_outputs(q.device)
        splits = self.split_count()
        self.tiling("reduce")  # A tiling that makes no sense is refused even if it is not needed.
        if splits > 1:
            o_parts, lse_parts = self.partials(splits, q.device)
        else:
            o_parts, lse_parts = o.flatten(1, 2)[:, None], lse.flatten(1, 2)[:, None]
        rows = self.h * self.s
        operands = (
            *(q.flatten(1, 2), qpe.flatten(1, 2), *self.parts(cache), o_parts, lse_parts),
            *(self.scale * INV_LOG_2, self.s, self.k, self.p),
        )
        parts = CtKernel(
            split,
            grid_fn=lambda x: (ct.cdiv(rows, x.tile_m), splits, self.b),
            args_fn=lambda x: (*operands, x.tile_m, x.tile_n, FP8_GROUP, self.causal),
            input_tensors={"q": q, "qpe": qpe, "cache": cache},
            output_tensors={"o_parts": o_parts, "lse_parts": lse_parts}
            if splits > 1
            else {"o": o, "lse": lse},
            tiling=self.tiling("split"),
            autotune_configs=self._autotune_configs()["split"],
            algorithmic_flops_bytes_fn=lambda _: (
                self.split_cost(splits) if splits > 1 else self._algorithmic_flops_bytes()
            ),
            _name="split",
        )
        stages = [parts, self.reduce(o_parts, lse_parts, o, lse)] if splits > 1 else [parts]
        return KernelPipeline(_name="flash_mla_fp8", stages=stages)


@ct.kernel
def split(
    q: ct.Array,
    qpe: ct.Array,
    z: ct.Array,
    scales: ct.Array,
    kpe: ct.Array,
    o: ct.Array,
    lse: ct.Array,
    scale_log2: ConstFloat,
    QUERIES: ConstInt,
    K: ConstInt,
    P: ConstInt,
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    GROUP: ConstInt,
    CAUSAL: ConstBool,
):
    """Grid (row tiles, splits, b).

    q [b,h*s,K], qpe [b,h*s,P], z [b,t,K] in e4m3, scales [b,t,K/GROUP] in fp32, kpe [b,t,P],
    o [b,splits,h*s,K], lse [b,splits,h*s]; row r is query r % s of head r // s.
    """
    tile_r, split, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    keys, splits = z.shape[1], o.shape[1]
    zero = ct.PaddingMode.ZERO
    query = ct.load(q, (batch, tile_r, 0), (1, TILE_M, K), padding_mode=zero).reshape((TILE_M, K))
    query_pe = ct.load(qpe, (batch, tile_r, 0), (1, TILE_M, P), padding_mode=zero)
    query_pe = query_pe.reshape((TILE_M, P))
    # One past the last key a row sees, bottom-right aligned. Tiles [0, full) lie below the limit
    # of every row, tiles from stop on above all of them.
    if CAUSAL:
        row = tile_r * TILE_M + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
        seen = keys - QUERIES + 1
        limit = ct.minimum(row % QUERIES + seen, keys)
        # A tile within one head holds queries first to last; one that crosses heads, all of them.
        first = tile_r * TILE_M % QUERIES
        last = first + TILE_M - 1
        crosses = last >= QUERIES
        first, last = ct.where(crosses, 0, first), ct.where(crosses, QUERIES - 1, last)
        full = ct.maximum(first + seen, 0) // TILE_N
        stop = ct.cdiv(ct.maximum(last + seen, 0), TILE_N)
    else:
        limit, full, stop = keys, keys // TILE_N, ct.cdiv(keys, TILE_N)
    # The splits share the tiles [0, stop) evenly; with more splits than tiles some get none.
    begin, end = stop * split // splits, stop * (split + 1) // splits
    full = ct.minimum(ct.maximum(full, begin), end)

    # A finite start keeps exp2(row_max - new_max) defined for rows that see no key at all.
    row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
    row_sum = ct.zeros((TILE_M, 1), ct.float32)
    acc = ct.zeros((TILE_M, K), ct.float32)
    for masked in ct.static_iter((False, True)):
        for j in range(full if masked else begin, end if masked else full):
            at = (batch, j, 0)
            packed = ct.load(z, at, (1, TILE_N, K), padding_mode=zero)
            scale = ct.load(scales, at, (1, TILE_N, K // GROUP), padding_mode=zero)
            # One scale for each GROUP values of a row; the product is rounded to the operand type.
            latent = packed.astype(ct.float32).reshape((TILE_N, K // GROUP, GROUP))
            latent = latent * scale.reshape((TILE_N, K // GROUP, 1))
            latent = latent.reshape((TILE_N, K)).astype(q.dtype)
            key_pe = ct.load(kpe, at, (1, TILE_N, P), padding_mode=zero)
            score = ct.zeros((TILE_M, TILE_N), ct.float32)
            score = ct.mma(query, latent.transpose(), score)
            score = ct.mma(query_pe, key_pe.reshape((TILE_N, P)).transpose(), score)
            if masked:
                col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]  # [1, TILE_N]
                score = ct.where(col < limit, score, -float("inf"))
            new_max = ct.maximum(row_max, ct.max(score, axis=1, keepdims=True) * scale_log2)
            weight = ct.exp2(score * scale_log2 - new_max, flush_to_zero=True)
            rescale = ct.exp2(row_max - new_max, flush_to_zero=True)
            row_sum = row_sum * rescale + ct.sum(weight, axis=1, keepdims=True)
            acc = ct.mma(weight.astype(q.dtype), latent, acc * rescale)
            row_max = new_max

    empty = row_sum == 0.0
    out = acc * (1.0 / ct.where(empty, 1.0, row_sum))
    log_sum = ct.where(empty, -float("inf"), (row_max + ct.log2(row_sum)) / INV_LOG_2)
    ct.store(o, (batch, split, tile_r, 0), out.astype(o.dtype).reshape((1, 1, TILE_M, K)))
    ct.store(lse, (batch, split, tile_r), log_sum.reshape((1, 1, TILE_M)))
