"""Block-specialized kernel of both paths: first blocks take old tokens, the others the new ones."""

from __future__ import annotations

import cuda.tile as ct

from mla_var3.kernel.cutile.mla.mla_var6_plus.steps import key_tiles, normalise, online_softmax
from mla_var3.runtime.ct_kernel import ConstBool, ConstFloat, ConstInt


@ct.kernel
def attention(
    q: ct.Array,
    q_latent: ct.Array,
    qpe: ct.Array,
    z: ct.Array,
    kpe_old: ct.Array,
    kpe_new: ct.Array,
    key: ct.Array,
    value: ct.Array,
    o_old: ct.Array,
    lse_old: ct.Array,
    o_new: ct.Array,
    lse_new: ct.Array,
    scale_log2: ConstFloat,
    latent_blocks,
    D: ConstInt,
    K: ConstInt,
    P: ConstInt,
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    CAUSAL: ConstBool,
    HAS_OLD: ConstBool,
    HAS_NEW: ConstBool,
):
    """Grid (blocks): the first latent_blocks take the latent path, the others the decompressed one.

    q [b,h,s,D], q_latent [b,h,s,K], qpe [b,h,s,P], z [b,o,K], kpe_old [b,o,P], kpe_new [b,n,P],
    key and value [b,n,h,D]. An item is one head of one sequence by TILE_M queries.
    """
    batches, heads, queries = q.shape[0], q.shape[1], q.shape[2]
    tiles = ct.cdiv(queries, TILE_M)
    items = batches * heads * tiles
    zero = ct.PaddingMode.ZERO

    if HAS_OLD and ct.bid(0) < latent_blocks:
        keys = z.shape[1]
        # Causal rows see all old keys but the last few, when fewer than s tokens are new.
        new = key.shape[1] if HAS_NEW else 0
        seen = keys + new - queries + 1
        for item in range(ct.bid(0), items, latent_blocks):
            tile, head, batch = item % tiles, item // tiles % heads, item // tiles // heads
            at = (batch, head, tile, 0)
            query = ct.load(q_latent, at, (1, 1, TILE_M, K), padding_mode=zero)
            query = query.reshape((TILE_M, K))
            query_pe = ct.load(qpe, at, (1, 1, TILE_M, P), padding_mode=zero)
            query_pe = query_pe.reshape((TILE_M, P))
            first = tile * TILE_M
            row = first + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
            limit = ct.minimum(row + seen, keys) if CAUSAL else keys
            last = ct.minimum(first + TILE_M, queries) - 1
            full, stop = key_tiles(first, last, seen, keys, TILE_N, CAUSAL)

            row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
            row_sum = ct.zeros((TILE_M, 1), ct.float32)
            acc = ct.zeros((TILE_M, K), ct.float32)
            for masked in ct.static_iter((False, True)):
                for j in range(full if masked else 0, stop if masked else full):
                    latent = ct.load(z, (batch, j, 0), (1, TILE_N, K), padding_mode=zero)
                    latent = latent.reshape((TILE_N, K))
                    key_pe = ct.load(kpe_old, (batch, j, 0), (1, TILE_N, P), padding_mode=zero)
                    key_pe = key_pe.reshape((TILE_N, P))
                    score = ct.zeros((TILE_M, TILE_N), ct.float32)
                    score = ct.mma(query, latent.transpose(), score)
                    score = ct.mma(query_pe, key_pe.transpose(), score) * scale_log2
                    if masked:
                        col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]
                        score = ct.where(col < limit, score, -float("inf"))
                    row_max, row_sum, acc = online_softmax(score, latent, row_max, row_sum, acc)

            out, log_sum = normalise(row_max, row_sum, acc)
            ct.store(o_old, at, out.astype(o_old.dtype).reshape((1, 1, TILE_M, K)))
            ct.store(lse_old, (batch, head, tile), log_sum.reshape((1, 1, TILE_M)))
    if HAS_NEW and ct.bid(0) >= latent_blocks:
        keys = key.shape[1]
        seen = keys - queries + 1
        for item in range(ct.bid(0) - latent_blocks, items, ct.num_blocks(0) - latent_blocks):
            tile, head, batch = item % tiles, item // tiles % heads, item // tiles // heads
            at = (batch, head, tile, 0)
            query = ct.load(q, at, (1, 1, TILE_M, D), padding_mode=zero).reshape((TILE_M, D))
            query_pe = ct.load(qpe, at, (1, 1, TILE_M, P), padding_mode=zero)
            query_pe = query_pe.reshape((TILE_M, P))
            first = tile * TILE_M
            row = first + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
            limit = ct.minimum(row + seen, keys) if CAUSAL else keys
            last = ct.minimum(first + TILE_M, queries) - 1
            full, stop = key_tiles(first, last, seen, keys, TILE_N, CAUSAL)

            row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
            row_sum = ct.zeros((TILE_M, 1), ct.float32)
            acc = ct.zeros((TILE_M, D), ct.float32)
            for masked in ct.static_iter((False, True)):
                for j in range(full if masked else 0, stop if masked else full):
                    near = (batch, j, head, 0)
                    keys_n = ct.load(key, near, (1, TILE_N, 1, D), padding_mode=zero)
                    values_n = ct.load(value, near, (1, TILE_N, 1, D), padding_mode=zero)
                    key_pe = ct.load(kpe_new, (batch, j, 0), (1, TILE_N, P), padding_mode=zero)
                    key_pe = key_pe.reshape((TILE_N, P))
                    score = ct.zeros((TILE_M, TILE_N), ct.float32)
                    score = ct.mma(query, keys_n.reshape((TILE_N, D)).transpose(), score)
                    score = ct.mma(query_pe, key_pe.transpose(), score) * scale_log2
                    if masked:
                        col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]
                        score = ct.where(col < limit, score, -float("inf"))
                    row_max, row_sum, acc = online_softmax(
                        score, values_n.reshape((TILE_N, D)), row_max, row_sum, acc
                    )

            out, log_sum = normalise(row_max, row_sum, acc)
            ct.store(o_new, at, out.astype(o_new.dtype).reshape((1, 1, TILE_M, D)))
            ct.store(lse_new, (batch, head, tile), log_sum.reshape((1, 1, TILE_M)))
