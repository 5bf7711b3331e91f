"""The key loop of latent attention, without mask and rotary part, in the forms that pages compare.

Queries q [rows, K] attend to the cache z [keys, K], which is key and value at once.
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


def counted(padding=ZERO, latency=None, allow_tma=None, check_bounds=True) -> Any:
    """A loop over the array's own shape, with options of its one load."""

    @ct.kernel
    def latent_loop(q, z, out, M: ConstInt, N: ConstInt, K: ConstInt):
        query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
        top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
        acc = ct.zeros((M, K), ct.float32)
        for j in range(ct.cdiv(z.shape[0], N)):
            latent = ct.load(
                z, (j, 0), (N, K), padding_mode=padding, latency=latency, allow_tma=allow_tma,
                check_bounds=check_bounds,
            )  # fmt: skip
            top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
        ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))

    return latent_loop


@ct.kernel
def constant_bound(q, z, out, M: ConstInt, N: ConstInt, K: ConstInt, KEYS: ConstInt):
    """A bound that is a constant."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(KEYS // N):
        latent = ct.load(z, (j, 0), (N, K), padding_mode=ZERO)
        top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def two_loads(q, z, out, M: ConstInt, N: ConstInt, K: ConstInt):
    """The cache loaded twice, once as keys in the other order."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(ct.cdiv(z.shape[0], N)):
        keys = ct.load(z, (0, j), (K, N), order=(1, 0), padding_mode=ZERO)
        values = ct.load(z, (j, 0), (N, K), padding_mode=ZERO)
        top, total, acc = attend(query, keys, values, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def bound_from_data(q, z, out, lengths, M: ConstInt, N: ConstInt, K: ConstInt):
    """A bound that is read from memory."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(ct.cdiv(ct.load(lengths, (ct.bid(0),), (1,)).item(), N)):
        latent = ct.load(z, (j, 0), (N, K), padding_mode=ZERO)
        top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def branch(q, z, out, lengths, M: ConstInt, N: ConstInt, K: ConstInt):
    """A bound that is read from memory, tested in each step."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    last = ct.cdiv(ct.load(lengths, (ct.bid(0),), (1,)).item(), N)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(ct.cdiv(z.shape[0], N)):
        if j < last:
            latent = ct.load(z, (j, 0), (N, K), padding_mode=ZERO)
            top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def branch_on_data(q, z, out, needed, M: ConstInt, N: ConstInt, K: ConstInt):
    """A flag per tile, read from memory, that says whether the tile is needed."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(ct.cdiv(z.shape[0], N)):
        if ct.load(needed, (j,), (1,)).item() > 0:
            latent = ct.load(z, (j, 0), (N, K), padding_mode=ZERO)
            top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def while_loop(q, z, out, lengths, M: ConstInt, N: ConstInt, K: ConstInt):
    """A bound that is read from memory, and a count by hand."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    last = ct.cdiv(ct.load(lengths, (ct.bid(0),), (1,)).item(), N)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    j = 0
    while j < last:
        latent = ct.load(z, (j, 0), (N, K), padding_mode=ZERO)
        top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
        j += 1
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def paged(q, z, out, table, M: ConstInt, N: ConstInt, K: ConstInt):
    """One index per tile: pages of N rows."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(ct.cdiv(z.shape[0], N)):
        page = ct.load(table, (j,), (1,)).item()
        latent = ct.load(z, (page, 0), (N, K), padding_mode=ZERO)
        top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def gathered(q, z, out, table, M: ConstInt, N: ConstInt, K: ConstInt):
    """One index per row, element by element."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(ct.cdiv(z.shape[0], N)):
        rows = ct.load(table, (j,), (N,), padding_mode=ZERO)
        columns = ct.arange(K, dtype=ct.int32)
        latent = ct.gather(z, (rows[:, None], columns[None, :]))
        top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def indexed(q, z, out, table, M: ConstInt, N: ConstInt, K: ConstInt):
    """One index per row, by an index tile."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO)
    top, total = ct.full((M, 1), -1e30, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, K), ct.float32)
    for j in range(ct.cdiv(z.shape[0], N)):
        rows = ct.load(table, (j,), (N,), padding_mode=ZERO)
        latent = ct.load_advanced_indexing(z, (rows, ct.Slice(0, K)), padding_mode=ZERO)
        top, total, acc = attend(query, latent.transpose(), latent, top, total, acc)
    ct.store(out, (ct.bid(0), 0), (acc / total).astype(out.dtype))


@ct.kernel
def swapped(q, z, out, M: ConstInt, N: ConstInt, K: ConstInt):
    """Keys on the M side of both products; the accumulator is [K, M]."""
    query = ct.load(q, (ct.bid(0), 0), (M, K), padding_mode=ZERO).transpose()
    top, total = ct.full((1, M), -1e30, ct.float32), ct.zeros((1, M), ct.float32)
    acc = ct.zeros((K, M), ct.float32)
    for j in range(ct.cdiv(z.shape[0], N)):
        latent = ct.load(z, (j, 0), (N, K), padding_mode=ZERO)
        score = ct.mma(latent, query, ct.zeros((N, M), ct.float32))
        new = ct.maximum(top, ct.max(score, axis=0, keepdims=True))
        weight = ct.exp2(score - new, flush_to_zero=True)
        rescale = ct.exp2(top - new, flush_to_zero=True)
        total = total * rescale + ct.sum(weight, axis=0, keepdims=True)
        acc = ct.mma(latent.transpose(), weight.astype(z.dtype), acc * rescale)
        top = new
    ct.store(out, (ct.bid(0), 0), (acc / total).transpose().astype(out.dtype))


#: Form of the loop to its kernel, and whether it takes a table of integers.
FORMS: dict[str, tuple[Any, bool]] = {
    "counted": (counted(), False),
    "undetermined": (counted(padding=ct.PaddingMode.UNDETERMINED), False),
    "unchecked": (counted(padding=ct.PaddingMode.UNDETERMINED, check_bounds=False), False),
    "minus-infinity": (counted(padding=ct.PaddingMode.NEG_INF), False),
    "no-tma": (counted(allow_tma=False), False),
    "latency-1": (counted(latency=1), False),
    "latency-4": (counted(latency=4), False),
    "latency-10": (counted(latency=10), False),
    "constant": (constant_bound, False),
    "two-loads": (two_loads, False),
    "from-data": (bound_from_data, True),
    "branch": (branch, True),
    "branch-on-data": (branch_on_data, True),
    "while": (while_loop, True),
    "paged": (paged, True),
    "gathered": (gathered, True),
    "indexed": (indexed, True),
    "swapped": (swapped, False),
}


def kernel(form: str, k: int, rows: int, keys: int, stride: int | None = None) -> CtKernel:
    """A form of the loop, bound to meta tensors.

    Args:
        form: A key of ``FORMS``.
        k: Width of the latent.
        rows: Rows of queries.
        keys: Rows of the cache.
        stride: Elements from row to row of the cache; ``k`` by default, 0 for every other column
            of a matrix twice as wide.
    """
    function, indexed_by = FORMS[form]
    q, out = (torch.empty(rows, k, dtype=torch.bfloat16, device="meta") for _ in range(2))
    width = 2 * k if stride == 0 else stride or k
    z = torch.empty(keys, width, dtype=torch.bfloat16, device="meta")
    z = z[:, ::2] if stride == 0 else z[:, :k]
    table = (torch.empty(keys, dtype=torch.int32, device="meta"),) if indexed_by else ()
    bound = (keys,) if form == "constant" else ()
    return CtKernel(
        function,
        grid_fn=lambda x: (ct.cdiv(rows, x.tile_m),),
        args_fn=lambda x: (q, z, out, *table, x.tile_m, x.tile_n, k, *bound),
        input_tensors={"q": q, "z": z},
        output_tensors={"out": out},
        tiling=TileMN(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda x: Cost(0, 0),
    )
