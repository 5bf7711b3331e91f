"""The latent loop in two parts, full tiles and masked ones, with bounds found in two ways.

Row r stands for query ``r % queries`` and sees the keys up to its own position.
"""

from __future__ import annotations

import cuda.tile as ct
import torch

from mla_var3.runtime.ct_kernel import ConstInt, CtKernel, TileMN
from mla_var3.workloads import Cost

ZERO = ct.PaddingMode.ZERO


def attend(query, z, first, last, limits, top, total, acc, N):
    """The steps from one tile of keys to another, each masked by the rows' limits."""
    for j in range(first, last):
        latent = ct.load(z, (j, 0), (N, query.shape[1]), padding_mode=ZERO)
        score = ct.mma(query, latent.transpose(), ct.zeros((query.shape[0], N), ct.float32))
        keys = j * N + ct.arange(N, dtype=ct.int32)
        score = ct.where(keys[None, :] < limits[:, None], score, -1e30)
        new = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
        weight = ct.exp2(score - new, flush_to_zero=True)
        rescale = ct.exp2(top - new, flush_to_zero=True)
        total = total * rescale + ct.sum(weight, axis=1, keepdims=True)
        acc = ct.mma(weight.astype(z.dtype), latent, acc * rescale)
        top = new
    return top, total, acc


@ct.kernel
def reduced(q, z, out, queries: int, M: ConstInt, N: ConstInt, K: ConstInt):
    """Bounds as the least and the largest over a tile of limits."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    rows = ct.bid(0) * M + ct.arange(M, dtype=ct.int32)
    limits = z.shape[0] - queries + rows % queries + 1
    full, last = ct.min(limits).item() // N, ct.cdiv(ct.max(limits).item(), N)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    top, total, acc = attend(query, z, 0, full, limits, top, total, acc, N)
    top, total, acc = attend(query, z, full, last, limits, top, total, acc, N)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def scalars(q, z, out, queries: int, M: ConstInt, N: ConstInt, K: ConstInt):
    """The same bounds from the numbers of the first and of the last query."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    rows = ct.bid(0) * M + ct.arange(M, dtype=ct.int32)
    limits = z.shape[0] - queries + rows % queries + 1
    full, last = (z.shape[0] - queries + 1) // N, ct.cdiv(z.shape[0], N)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    top, total, acc = attend(query, z, 0, full, limits, top, total, acc, N)
    top, total, acc = attend(query, z, full, last, limits, top, total, acc, N)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


FORMS = {"reduced": reduced, "scalars": scalars}


def kernel(form: str, k: int, rows: int, keys: int, queries: int) -> CtKernel:
    """A form of the loop, bound to meta tensors.

    Args:
        form: A key of ``FORMS``.
        k: Width of the latent.
        rows: Rows of queries.
        keys: Rows of the cache.
        queries: Query tokens that rows stand for in turn.
    """
    q, out = (torch.empty(rows, k, dtype=torch.bfloat16, device="meta") for _ in range(2))
    z = torch.empty(keys, k, dtype=torch.bfloat16, device="meta")
    return CtKernel(
        FORMS[form],
        grid_fn=lambda x: (ct.cdiv(rows, x.tile_m),),
        args_fn=lambda x: (q, z, out, queries, x.tile_m, x.tile_n, k),
        input_tensors={"q": q, "z": z},
        output_tensors={"out": out},
        tiling=TileMN(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda x: Cost(0, 0),
    )
