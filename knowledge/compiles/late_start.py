"""The key loop of latent attention over rows that begin at a token of run time, in four forms.

Queries q [rows, K] attend to the cache z [keys, K], which is key and value at once, from the token
on that ``starts`` names.
"""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from mla_var3.runtime.ct_kernel import ConstInt, CtKernel, TileMN
from mla_var3.workloads import Cost

ZERO = ct.PaddingMode.ZERO


def attend(query, keys, values, top, total, acc):
    """One step of online softmax: query [M, K], keys [K, N], values [N, K], acc [M, K]."""
    score = ct.mma(query, keys, ct.zeros((query.shape[0], keys.shape[1]), ct.float32))
    new = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
    weight = ct.exp2(score - new, flush_to_zero=True)
    rescale = ct.exp2(top - new, flush_to_zero=True)
    total = total * rescale + ct.sum(weight, axis=1, keepdims=True)
    return new, total, ct.mma(weight.astype(values.dtype), values, acc * rescale)


@ct.kernel
def shifted(q, z, out, starts, M: ConstInt, N: ConstInt, K: ConstInt):
    """A view that begins there, cut into tiles."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    start = ct.load(starts, (0,), ()).item()
    window = z.slice(axis=0, start=start, stop=z.shape[0])
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(ct.cdiv(z.shape[0] - start, N)):
        latent = ct.load(window, (j, 0), (N, K), padding_mode=ZERO)
        top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def numbered(q, z, out, starts, M: ConstInt, N: ConstInt, K: ConstInt):
    """Rows by number, counted from there."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    start = ct.load(starts, (0,), ()).item()
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(ct.cdiv(z.shape[0] - start, N)):
        rows = start + j * N + ct.arange(N, dtype=ct.int32)
        latent = ct.load_advanced_indexing(z, (rows, ct.Slice(0, K)), padding_mode=ZERO)
        top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def gathered(q, z, out, starts, M: ConstInt, N: ConstInt, K: ConstInt):
    """Elements by number."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    start = ct.load(starts, (0,), ()).item()
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    columns = ct.arange(K, dtype=ct.int32)
    for j in range(ct.cdiv(z.shape[0] - start, N)):
        rows = start + j * N + ct.arange(N, dtype=ct.int32)
        latent = ct.gather(z, (rows[:, None], columns[None, :]))
        top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def hidden(q, z, out, starts, M: ConstInt, N: ConstInt, K: ConstInt):
    """From the tile on that holds the start, with the scores before it hidden."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    start = ct.load(starts, (0,), ()).item()
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(start // N, ct.cdiv(z.shape[0], N)):
        latent = ct.load(z, (j, 0), (N, K), padding_mode=ZERO)
        score = ct.mma(query, latent.transpose(), ct.zeros((M, N), ct.float32))
        column = j * N + ct.arange(N, dtype=ct.int32)
        score = ct.where((column >= start)[None, :], score, -1e30)
        new = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
        weight = ct.exp2(score - new, flush_to_zero=True)
        rescale = ct.exp2(top - new, flush_to_zero=True)
        total = total * rescale + ct.sum(weight, axis=1, keepdims=True)
        acc = ct.mma(weight.astype(z.dtype), latent, acc * rescale)
        top = new
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


FORMS: dict[str, Any] = {
    "shifted": shifted, "numbered": numbered, "gathered": gathered, "hidden": hidden,
}  # fmt: skip


def kernel(form: str, k: int, rows: int, keys: int) -> CtKernel:
    """A form of the loop, a key of ``FORMS``, bound to meta tensors of so many rows and keys."""
    q, out = (torch.empty(rows, k, dtype=torch.bfloat16, device="meta") for _ in range(2))
    z = torch.empty(keys, k, dtype=torch.bfloat16, device="meta")
    starts = torch.empty(1, dtype=torch.int32, device="meta")
    return CtKernel(
        FORMS[form],
        grid_fn=lambda x: (ct.cdiv(rows, x.tile_m),),
        args_fn=lambda x: (q, z, out, starts, x.tile_m, x.tile_n, k),
        input_tensors={"q": q, "z": z},
        output_tensors={"out": out},
        tiling=TileMN(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda x: Cost(0, 0),
    )
