"""The reduce stage of split-KV in the forms that were tried: rows beside splits in one tile."""

from __future__ import annotations

import math
from typing import Any

import cuda.tile as ct
import torch

from mla_var3.runtime.ct_kernel import ConstBool, ConstInt, CtKernel, TileMN
from mla_var3.workloads import Cost

K = 512


@ct.kernel
def merged_rows(
    o_parts, lse_parts, o, ROWS: ConstInt, SPLITS: ConstInt, COLUMNS: ConstInt, RUNNING: ConstBool
):
    """Merge partial outputs [splits, rows, K] by their LSE [splits, rows] into o [rows, K]."""
    tile_r, tile_k = ct.bid(0), ct.bid(1)
    neg, zero = ct.PaddingMode.NEG_INF, ct.PaddingMode.ZERO
    top = ct.full((1, ROWS, 1), -1e30, ct.float32)
    if not RUNNING:  # The maximum over all splits first, so that no step rescales.
        for i in range(ct.cdiv(lse_parts.shape[0], SPLITS)):
            part = ct.load(lse_parts, (i, tile_r), (SPLITS, ROWS), padding_mode=neg)
            top = ct.maximum(top, ct.max(part.reshape((SPLITS, ROWS, 1)), axis=0, keepdims=True))
    total = ct.zeros((1, ROWS, 1), ct.float32)
    acc = ct.zeros((1, ROWS, COLUMNS), ct.float32)
    for i in range(ct.cdiv(o_parts.shape[0], SPLITS)):
        part = ct.load(lse_parts, (i, tile_r), (SPLITS, ROWS), padding_mode=neg)
        part = part.reshape((SPLITS, ROWS, 1))
        shape = (SPLITS, ROWS, COLUMNS)
        piece = ct.load(o_parts, (i, tile_r, tile_k), shape, padding_mode=zero)
        if RUNNING:
            new = ct.maximum(top, ct.max(part, axis=0, keepdims=True))
            rescale = ct.exp2(top - new, flush_to_zero=True)
            total, acc, top = total * rescale, acc * rescale, new
        weight = ct.exp2(part - top, flush_to_zero=True)
        total = total + ct.sum(weight, axis=0, keepdims=True)
        acc = acc + ct.sum(weight * piece, axis=0, keepdims=True)
    out = (acc / total).astype(o.dtype).reshape((ROWS, COLUMNS))
    ct.store(o, (tile_r, tile_k), out)


def kernel(rows: int, splits: int, columns: int, running: bool, hinted: bool) -> Any:
    """The form bound to the partial outputs of 128 rows and 16 splits, which need no memory."""
    o_parts = torch.empty((16, 128, K), dtype=torch.float32, device="meta")
    lse = torch.empty((16, 128), dtype=torch.float32, device="meta")
    o = torch.empty((128, K), dtype=torch.bfloat16, device="meta")
    return CtKernel(
        merged_rows,
        grid_fn=lambda _: (math.ceil(128 / rows), math.ceil(K / columns), 1),
        args_fn=lambda _: (o_parts, lse, o, rows, splits, columns, running),
        input_tensors={"o_parts": o_parts, "lse": lse},
        output_tensors={"o": o},
        tiling=TileMN(occupancy=8 if hinted else None),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda _: Cost(0, 0),
        _name="merged_rows",
    )
