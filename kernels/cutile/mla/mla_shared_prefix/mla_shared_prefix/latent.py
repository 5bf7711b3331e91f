"""Kernel of the own tokens: split-KV in the latent space, heads grouped into rows of a tile."""

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
    QUERIES: ConstInt,
    K: ConstInt,
    P: ConstInt,
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    CAUSAL: ConstBool,
):
    """Grid (row tiles, splits, b).

    q [b,h*s,K], qpe [b,h*s,P], z [b,o,K], kpe [b,o,P], o [splits,b,h*s,K], lse [splits,b,h*s];
    row r is query r % s of head r // s. The own tokens are the last ones of the context, so the
    mask is that of attention over them alone.
    """
    tile_r, split, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    keys, splits = z.shape[1], o.shape[0]
    zero = ct.PaddingMode.ZERO
    query = ct.load(q, (batch, tile_r, 0), (1, TILE_M, K), padding_mode=zero).reshape((TILE_M, K))
    query_pe = ct.load(qpe, (batch, tile_r, 0), (1, TILE_M, P), padding_mode=zero)
    query_pe = query_pe.reshape((TILE_M, P))
    # One past the last key a row sees. Tiles [0, full) lie below the limit of every row, tiles from
    # stop on above all of them. The plan refuses more queries than own tokens, so each sees a key.
    if CAUSAL:
        row = tile_r * TILE_M + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
        seen = keys - QUERIES + 1
        limit = row % QUERIES + seen
        # A tile within one head holds queries first to last; one that crosses heads, all of them.
        first = tile_r * TILE_M % QUERIES
        last = first + TILE_M - 1
        crosses = last >= QUERIES
        first, last = ct.where(crosses, 0, first), ct.where(crosses, QUERIES - 1, last)
        full, stop = (first + seen) // TILE_N, ct.cdiv(last + seen, TILE_N)
    else:
        limit, full, stop = keys, keys // TILE_N, ct.cdiv(keys, TILE_N)
    # The pieces share the tiles [0, stop) evenly; with more pieces than tiles some get none.
    begin, end = stop * split // splits, stop * (split + 1) // splits
    full = ct.minimum(ct.maximum(full, begin), end)

    # A finite start keeps exp2(row_max - new_max) defined for a piece without keys.
    row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
    row_sum = ct.zeros((TILE_M, 1), ct.float32)
    acc = ct.zeros((TILE_M, K), ct.float32)
    for masked in ct.static_iter((False, True)):
        for j in range(full if masked else begin, end if masked else full):
            latent = ct.load(z, (batch, j, 0), (1, TILE_N, K), padding_mode=zero)
            latent = latent.reshape((TILE_N, K))
            key_pe = ct.load(kpe, (batch, j, 0), (1, TILE_N, P), padding_mode=zero)
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
            acc = ct.mma(weight.astype(z.dtype), latent, acc * rescale)
            row_max = new_max

    empty = row_sum == 0.0
    out = acc * (1.0 / ct.where(empty, 1.0, row_sum))
    log_sum = ct.where(empty, -float("inf"), (row_max + ct.log2(row_sum)) / INV_LOG_2)
    ct.store(o, (split, batch, tile_r, 0), out.astype(o.dtype).reshape((1, 1, TILE_M, K)))
    ct.store(lse, (split, batch, tile_r), log_sum.reshape((1, 1, TILE_M)))
