"""Mainloop helpers of both paths: causal range of key tiles, online softmax step, normalization."""

from __future__ import annotations

import cuda.tile as ct

from mla_var3.runtime.ct_kernel import INV_LOG_2


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
