"""The key loop of causal attention with d=128 and no rotary part: one loop, or two with bounds."""

from __future__ import annotations

import cuda.tile as ct
import torch

from mla_var3.runtime.ct_kernel import ConstBool, ConstInt, CtKernel, TileMN
from mla_var3.workloads import Cost

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def attention_loop(q, k, v, out, M: ConstInt, N: ConstInt, D: ConstInt, SPLIT: ConstBool):
    """Grid (query tiles, heads): q, out [h, s, D], k, v [h, t, D]."""
    tile, head = ct.bid(0), ct.bid(1)
    shift = k.shape[1] - q.shape[1] + 1
    query = ct.load(q, (head, tile, 0), (1, M, D), padding_mode=ZERO).reshape((M, D))
    limit = tile * M + ct.arange(M, dtype=ct.int32)[:, None] + shift
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, D), ct.float32)
    if SPLIT:
        full, stop = (tile * M + shift) // N, ct.cdiv(tile * M + M - 1 + shift, N)
    else:
        full, stop = 0, ct.cdiv(k.shape[1], N)
    for masked in ct.static_iter((False, True) if SPLIT else (True,)):
        for j in range(full if masked else 0, stop if masked else full):
            key = ct.load(k, (head, j, 0), (1, N, D), padding_mode=ZERO).reshape((N, D))
            score = ct.mma(query, key.transpose(), ct.zeros((M, N), ct.float32))
            if masked:
                column = j * N + ct.arange(N, dtype=ct.int32)[None, :]
                score = ct.where(column < limit, score, -float("inf"))
            new = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
            weight = ct.exp2(score - new, flush_to_zero=True)
            rescale = ct.exp2(top - new, flush_to_zero=True)
            total = total * rescale + ct.sum(weight, axis=1, keepdims=True)
            value = ct.load(v, (head, j, 0), (1, N, D), padding_mode=ZERO).reshape((N, D))
            acc = ct.mma(weight.astype(v.dtype), value, acc * rescale)
            top = new
    out_tile = (acc / total).astype(out.dtype).reshape((1, M, D))
    ct.store(out, (head, tile, 0), out_tile)


def kernel(split: bool, s: int, d: int) -> CtKernel:
    """The loop, bound to meta tensors of 16 heads.

    Args:
        split: Whether tiles that no mask touches have a loop of their own.
        s: Queries, and keys.
        d: Width of a head.
    """
    q, k, v, out = (torch.empty(16, s, d, dtype=torch.bfloat16, device="meta") for _ in range(4))
    return CtKernel(
        attention_loop,
        grid_fn=lambda x: (ct.cdiv(s, x.tile_m), 16),
        args_fn=lambda x: (q, k, v, out, x.tile_m, x.tile_n, d, split),
        input_tensors={"q": q, "k": k, "v": v},
        output_tensors={"out": out},
        tiling=TileMN(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda x: Cost(0, 0),
    )
