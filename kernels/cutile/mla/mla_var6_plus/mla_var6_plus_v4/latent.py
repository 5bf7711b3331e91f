"""Latent kernel of v4: split-KV over the old tokens, heads grouped into rows of a tile."""

from __future__ import annotations

import cuda.tile as ct

from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstBool, ConstFloat, ConstInt


@ct.kernel
def latent(
    q: ct.Array,
    qpe: ct.Array,
    z: ct.Array,
    kpe: ct.Array,
    o: ct.Array,
    lse: ct.Array,
    scale_log2: ConstFloat,
    new,
    QUERIES: ConstInt,
    K: ConstInt,
    P: ConstInt,
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    CAUSAL: ConstBool,
):
    """Grid (blocks), each looping over items: a row tile by a split of the keys of one sequence.

    q [b,h*s,K], qpe [b,h*s,P], z [b,o,K], kpe [b,o,P], o [splits,b,h*s,K], lse [splits,b,h*s];
    row r is query r % s of head r // s. ``new`` tokens follow the old ones.
    """
    splits, batches, rows, keys = o.shape[0], q.shape[0], q.shape[1], z.shape[1]
    tiles = ct.cdiv(rows, TILE_M)
    steps = ct.cdiv(ct.cdiv(keys, TILE_N), splits)
    zero = ct.PaddingMode.ZERO
    # Row tiles come first, so that neighbouring blocks read the same keys through L2.
    for item in range(ct.bid(0), tiles * splits * batches, ct.num_blocks(0)):
        tile, split, batch = item % tiles, item // tiles % splits, item // tiles // splits
        query = ct.load(q, (batch, tile, 0), (1, TILE_M, K), padding_mode=zero)
        query = query.reshape((TILE_M, K))
        query_pe = ct.load(qpe, (batch, tile, 0), (1, TILE_M, P), padding_mode=zero)
        query_pe = query_pe.reshape((TILE_M, P))
        # One past the last key a row sees. Tiles [0, full) are seen whole by all rows, tiles from
        # stop on by none.
        if CAUSAL:
            row = tile * TILE_M + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
            seen = keys + new - QUERIES + 1
            limit = ct.minimum(row % QUERIES + seen, keys)
            # A tile within one head holds queries first to last; one across heads may hold any.
            first = tile * TILE_M % QUERIES
            last = first + TILE_M - 1
            crosses = last >= QUERIES
            first, last = ct.where(crosses, 0, first), ct.where(crosses, QUERIES - 1, last)
            full = ct.maximum(ct.minimum(first + seen, keys), 0) // TILE_N
            stop = ct.cdiv(ct.maximum(ct.minimum(last + seen, keys), 0), TILE_N)
        else:
            limit, full, stop = keys, keys // TILE_N, ct.cdiv(keys, TILE_N)
        begin = split * steps
        end = ct.minimum(begin + steps, stop)
        middle = ct.maximum(ct.minimum(full, end), begin)

        # A finite start keeps exp2(row_max - new_max) defined for rows that see no key at all.
        row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
        row_sum = ct.zeros((TILE_M, 1), ct.float32)
        acc = ct.zeros((TILE_M, K), ct.float32)
        for masked in ct.static_iter((False, True)):
            for j in range(middle if masked else begin, end if masked else middle):
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
        out = out.astype(o.dtype).reshape((1, 1, TILE_M, K))
        ct.store(o, (split, batch, tile, 0), out)
        ct.store(lse, (split, batch, tile), log_sum.reshape((1, 1, TILE_M)))
