"""Prefix kernel: a head's queries of a whole group are tile rows over one decompressed K and V."""

from __future__ import annotations

import cuda.tile as ct

from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstFloat, ConstInt


@ct.kernel
def decompressed(
    q: ct.Array,
    qpe: ct.Array,
    key: ct.Array,
    value: ct.Array,
    kpe: ct.Array,
    o: ct.Array,
    lse: ct.Array,
    scale_log2: ConstFloat,
    D: ConstInt,
    P: ConstInt,
    TILE_B: ConstInt,
    TILE_S: ConstInt,
    TILE_N: ConstInt,
):
    """Grid (row tiles of a group, h, groups * splits).

    q [groups,g,h,s,D], qpe [groups,g,h,s,P], key and value [groups,n,h,D], kpe [groups,n,P],
    o [splits*groups,g,h,s,D], lse [splits*groups,g,h,s]. Every query sees the whole prefix.
    """
    groups, queries, keys = q.shape[0], q.shape[3], key.shape[1]
    splits = o.shape[0] // groups
    tiles_s = ct.cdiv(queries, TILE_S)
    tile_b, tile_s, head = ct.bid(0) // tiles_s, ct.bid(0) % tiles_s, ct.bid(1)
    group, split = ct.bid(2) % groups, ct.bid(2) // groups
    ROWS = TILE_B * TILE_S
    zero = ct.PaddingMode.ZERO
    at = (group, tile_b, head, tile_s, 0)
    query = ct.load(q, at, (1, TILE_B, 1, TILE_S, D), padding_mode=zero).reshape((ROWS, D))
    query_pe = ct.load(qpe, at, (1, TILE_B, 1, TILE_S, P), padding_mode=zero).reshape((ROWS, P))
    # The pieces share the key tiles evenly; only the very last tile has keys to mask.
    stop = ct.cdiv(keys, TILE_N)
    begin, end = stop * split // splits, stop * (split + 1) // splits
    full = ct.minimum(ct.maximum(keys // TILE_N, begin), end)

    # A finite start keeps exp2(row_max - new_max) defined for a piece without keys.
    row_max = ct.full((ROWS, 1), -1e30, ct.float32)
    row_sum = ct.zeros((ROWS, 1), ct.float32)
    acc = ct.zeros((ROWS, D), ct.float32)
    for masked in ct.static_iter((False, True)):
        for j in range(full if masked else begin, end if masked else full):
            near = (group, j, head, 0)
            keys_n = ct.load(key, near, (1, TILE_N, 1, D), padding_mode=zero)
            key_pe = ct.load(kpe, (group, j, 0), (1, TILE_N, P), padding_mode=zero)
            score = ct.zeros((ROWS, TILE_N), ct.float32)
            score = ct.mma(query, keys_n.reshape((TILE_N, D)).transpose(), score)
            score = ct.mma(query_pe, key_pe.reshape((TILE_N, P)).transpose(), score)
            if masked:
                col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]  # [1, TILE_N]
                score = ct.where(col < keys, score, -float("inf"))
            # Scaling the maximum and not the scores leaves one fused multiply-add a score.
            new_max = ct.maximum(row_max, ct.max(score, axis=1, keepdims=True) * scale_log2)
            weight = ct.exp2(score * scale_log2 - new_max, flush_to_zero=True)
            rescale = ct.exp2(row_max - new_max, flush_to_zero=True)
            row_sum = row_sum * rescale + ct.sum(weight, axis=1, keepdims=True)
            row_max = new_max
            values_n = ct.load(value, near, (1, TILE_N, 1, D), padding_mode=zero)
            values_n = values_n.reshape((TILE_N, D))
            acc = ct.mma(weight.astype(value.dtype), values_n, acc * rescale)

    empty = row_sum == 0.0
    out = acc * (1.0 / ct.where(empty, 1.0, row_sum))
    log_sum = ct.where(empty, -float("inf"), (row_max + ct.log2(row_sum)) / INV_LOG_2)
    place = (ct.bid(2), tile_b, head, tile_s)
    ct.store(o, (*place, 0), out.astype(o.dtype).reshape((1, TILE_B, 1, TILE_S, D)))
    ct.store(lse, place, log_sum.reshape((1, TILE_B, 1, TILE_S)))
