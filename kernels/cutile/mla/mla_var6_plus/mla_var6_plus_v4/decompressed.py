"""Decompressed kernel of v4: split-KV over the new tokens, keys on the MMA's rows."""

from __future__ import annotations

import cuda.tile as ct

from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstBool, ConstFloat, ConstInt


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
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    CAUSAL: ConstBool,
):
    """Grid (blocks), each looping over items: a query tile of one head by a split of the keys.

    q [b,h,s,D], qpe [b,h,s,P], key and value [b,n,h,D], kpe [b,n,P], o [splits,b,h,s,D],
    lse [splits,b,h,s]. Scores and outputs are held transposed, [keys, queries] and [D, queries]:
    a head has too few queries to fill the rows of an MMA, keys and D fill them always.
    """
    splits, batches, heads, queries = o.shape[0], q.shape[0], q.shape[1], q.shape[2]
    keys = key.shape[1]
    tiles = ct.cdiv(queries, TILE_M)
    steps = ct.cdiv(ct.cdiv(keys, TILE_N), splits)
    seen = keys - queries + 1
    zero = ct.PaddingMode.ZERO
    for item in range(ct.bid(0), tiles * heads * splits * batches, ct.num_blocks(0)):
        tile, head = item % tiles, item // tiles % heads
        split, batch = item // tiles // heads % splits, item // tiles // heads // splits
        at = (batch, head, tile, 0)
        query = ct.load(q, at, (1, 1, TILE_M, D), padding_mode=zero).reshape((TILE_M, D))
        query_pe = ct.load(qpe, at, (1, 1, TILE_M, P), padding_mode=zero).reshape((TILE_M, P))
        # One past the last key a query sees. Tiles [0, full) are seen whole by all queries, tiles
        # from stop on by none.
        if CAUSAL:
            first = tile * TILE_M
            last = ct.minimum(first + TILE_M, queries) - 1
            row = first + ct.arange(TILE_M, dtype=ct.int32)[None, :]  # [1, TILE_M]
            limit = ct.minimum(row + seen, keys)
            full = ct.maximum(ct.minimum(first + seen, keys), 0) // TILE_N
            stop = ct.cdiv(ct.maximum(ct.minimum(last + seen, keys), 0), TILE_N)
        else:
            limit, full, stop = keys, keys // TILE_N, ct.cdiv(keys, TILE_N)
        begin = split * steps
        end = ct.minimum(begin + steps, stop)
        middle = ct.maximum(ct.minimum(full, end), begin)

        # A finite start keeps exp2(row_max - new_max) defined for rows that see no key at all.
        row_max = ct.full((1, TILE_M), -1e30, ct.float32)
        row_sum = ct.zeros((1, TILE_M), ct.float32)
        acc = ct.zeros((D, TILE_M), ct.float32)
        for masked in ct.static_iter((False, True)):
            for j in range(middle if masked else begin, end if masked else middle):
                near = (batch, j, head, 0)
                keys_n = ct.load(key, near, (1, TILE_N, 1, D), padding_mode=zero)
                values_n = ct.load(value, near, (1, TILE_N, 1, D), padding_mode=zero)
                key_pe = ct.load(kpe, (batch, j, 0), (1, TILE_N, P), padding_mode=zero)
                score = ct.zeros((TILE_N, TILE_M), ct.float32)
                score = ct.mma(keys_n.reshape((TILE_N, D)), query.transpose(), score)
                score = ct.mma(key_pe.reshape((TILE_N, P)), query_pe.transpose(), score)
                score = score * scale_log2
                if masked:
                    col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[:, None]  # [TILE_N, 1]
                    score = ct.where(col < limit, score, -float("inf"))
                new_max = ct.maximum(row_max, ct.max(score, axis=0, keepdims=True))
                weight = ct.exp2(score - new_max)
                rescale = ct.exp2(row_max - new_max)
                row_sum = row_sum * rescale + ct.sum(weight, axis=0, keepdims=True)
                values_t = values_n.reshape((TILE_N, D)).transpose()  # [D, TILE_N]
                acc = ct.mma(values_t, weight.astype(value.dtype), acc * rescale)
                row_max = new_max

        empty = row_sum == 0.0
        out = ct.where(empty, 0.0, acc / ct.where(empty, 1.0, row_sum)).transpose()
        log_sum = ct.where(empty, -float("inf"), (row_max + ct.log2(row_sum)) / INV_LOG_2)
        out = out.astype(o.dtype).reshape((1, 1, 1, TILE_M, D))
        ct.store(o, (split, batch, head, tile, 0), out)
        ct.store(lse, (split, batch, head, tile), log_sum.reshape((1, 1, 1, TILE_M)))
