"""What kernels compute, by plain torch: what lies between them and callers is at stake."""

from __future__ import annotations

import math

import torch

from mla_var3.serving import forms, kinds
from mla_var3.serving.forms import unpacked as as_keys

PAGE, WIDTH, LATENT = 64, 576, 512
NOTHING = 2147480000


def launched(kind, *values, written):
    """In place of ``launching.launch``."""
    assert all(x.device.type == "cpu" for x in written)
    if kind.name == "schedule":
        values[1].copy_(values[0].sum().expand_as(values[1]))
    elif kind.name == "attention":
        attention(*values)
    elif kind.name == "lists":
        lists(kind.form, *values)
    elif kind.name == "prefill":
        prefill(kind.form, *values)


def attention(
    q,
    qpe,
    z,
    kpe,
    table,
    lengths,
    cuts,
    places,
    signals,
    o,
    lse,
    masked,
    scale_log2,
    unit,
    none,
):
    """Results at once: no part is left."""
    scale = scale_log2 * kinds.LN_2
    for i, length in enumerate(lengths.tolist()):
        pages = table[i, : -(-length // z.shape[1])].long()
        rope = kpe if len(kpe) == len(z) else kpe.expand(len(z), z.shape[1], -1)
        keys = torch.cat([z[pages], rope[pages]], -1).flatten(0, 1)[:length]
        queries = torch.cat([q[i], qpe[i]], -1)
        found, sums = wanted(queries.transpose(0, 1), keys, keys[:, :LATENT], scale, masked > 0)
        o[i] = found.transpose(0, 1).to(o.dtype)
        sums = sums / kinds.LN_2 * unit
        lse[i, ..., 0] = sums.masked_fill(sums == -math.inf, none).float()


def lists(form, q, qpe, cache, other, tokens, others, firsts, lengths, *rest):
    """Results at once, of each list in a form."""
    _, _, _, o, lse, scale_log2, unit, none = rest
    width = q.shape[-1] if form in ("584", "584-second") else WIDTH
    keys, more = (as_keys(form, x).flatten(0, 1) for x in (cache, other))
    for i, (first, length) in enumerate(zip(firsts.tolist(), lengths.tolist(), strict=True)):
        if form.endswith("table"):
            pages = tokens[i // (len(firsts) // len(tokens)), : -(-length // cache.shape[1])]
            own = as_keys(form, cache)[pages.long()].flatten(0, 1)[:length]
        else:
            own = keys[named(tokens[i, :first], len(keys))]
        if form.endswith("second"):
            past = length - -(-first // kinds.KEYS) * kinds.KEYS
            own = torch.cat([own, more[named(others[i, :past], len(more))]])
        queries = torch.cat([q[i, 0], qpe[i, 0]], -1)[None, :, :width]
        scale = scale_log2 * kinds.LN_2
        found, sums = wanted(queries, own, own[:, :LATENT], scale, False)
        o[i, 0] = found[0].to(o.dtype)
        lse[i, :, 0, 0] = (sums[0] / kinds.LN_2 * unit).masked_fill(sums[0] == -math.inf, none)


def prefill(form, q, qpe, cache, tokens, lengths, sink, *rest):
    """Results at once, of each list of rows."""
    o, lse, top, _, counted, sunk, scale_log2 = rest[-7:]
    width, scale = (LATENT if form.startswith("rows512") else WIDTH), scale_log2 * kinds.LN_2
    rows = cache[0].contiguous().view(torch.bfloat16).float()
    for i, listed in enumerate(tokens):
        own = rows[named(listed[: lengths[i].clamp(min=0)] if counted else listed, len(rows))]
        queries = torch.cat([q[i, 0], qpe[i, 0]], -1)[None, :, :width]
        found, sums = wanted(queries, own, own[:, :LATENT], scale, False)
        share = torch.sigmoid(sums[0] - sink).nan_to_num(0.0)[:, None] if sunk else 1.0
        o[i, 0] = (found[0] * share).to(o.dtype)
        lse[i] = sums[0].masked_fill(sums[0] == -math.inf, math.inf)
        scores = queries[0].double() @ own.double().T * scale
        top[i] = scores.amax(-1) if len(own) else -math.inf


def named(tokens, count):
    """Those of a list that a cache has."""
    return tokens[(tokens >= 0) & (tokens < count)].long()


def packed_pages(tokens, page):
    """Tokens [n,512] in fp32 as pages of 584 bytes per token, [n / page, page, 1, 584]."""
    return forms.packed("584", tokens, page)


def packed(tokens):
    """Tokens [n,576] in fp32 as rows of bytes, with scales that are powers of two."""
    return forms.packed("656", tokens, 1).flatten(0, 2)


def unpacked(rows):
    """What rows of bytes stand for, in fp32."""
    return forms.unpacked("656", rows)


def wanted(q, k, v, scale, causal):
    """Heads of one sequence: q [h,s,w], k [t,w], v [t,e] to o [h,s,e] and the natural LSE [h,s]."""
    scores = q.double() @ k.double().T * scale
    if causal:
        s, t = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(s, t, dtype=torch.bool).triu(t - s + 1), -math.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ v.double(), scores.logsumexp(-1)


def paged_cache(lengths, heads=1, dtype=torch.bfloat16, page=PAGE):
    """Pages in a random order, NaN where no key is, and their table with addresses of nothing."""
    counts = [-(-length // page) for length in lengths]
    order = iter(torch.randperm(sum(counts)).tolist())
    cache = torch.randn(max(sum(counts), 1), page, heads, WIDTH).to(dtype)
    table = torch.full((len(lengths), max([1, *counts]) + 1), NOTHING, dtype=torch.int32)
    for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        for j in range(count):
            table[i, j] = next(order)
        if length % page:
            cache[table[i, count - 1], length % page :] = math.nan
    return cache, table


def vector(*lengths):
    """Lengths as calls take them."""
    return torch.tensor(lengths, dtype=torch.int32)
