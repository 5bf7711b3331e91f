"""Latent decode with another softmax: a learned sink logit per head, from ``adopted_mla.py``.

``nox -s check -- examples/adopted_sink.py`` compares it with ``reference``. What a change of the
formula touches is marked: start, score, finish, and the same change in ``reference``.
"""

from __future__ import annotations

import cuda.tile as ct
import torch

#: Values of a latent row, which are keys and values at once, and of its rotary part.
LATENT, ROTARY = 512, 64
#: Heads and keys of a tile.
ROWS, KEYS = 16, 64
CHECKS = [{"b": 2, "h": 16, "t": 128}, {"b": 1, "h": 20, "t": 97}]


@ct.kernel
def decode(
    q, cache, sinks, out, scale: float, T: ct.Constant[int], ROWS: ct.Constant[int],
    KEYS: ct.Constant[int], LATENT: ct.Constant[int], ROTARY: ct.Constant[int],
):  # fmt: skip
    """A block per sequence and group of heads."""
    b, group = ct.bid(0), ct.bid(1)
    zero = ct.PaddingMode.ZERO
    at = LATENT // ROTARY  # where the rotary part begins, in tiles of its width
    query = ct.load(q, (b, group, 0), (1, ROWS, LATENT), padding_mode=zero)
    query_rotary = ct.load(q, (b, group, at), (1, ROWS, ROTARY), padding_mode=zero)
    query, query_rotary = query.reshape((ROWS, LATENT)), query_rotary.reshape((ROWS, ROTARY))
    # Start: the sink is a key that was seen already, with weight exp(0) and no value.
    best = ct.load(sinks, (group,), (ROWS,), padding_mode=zero).reshape((ROWS, 1))
    total = ct.full((ROWS, 1), 1.0, ct.float32)
    acc = ct.zeros((ROWS, LATENT), ct.float32)
    for step in range(ct.cdiv(T, KEYS)):
        rows = ct.load(cache, (b, step, 0), (1, KEYS, LATENT), padding_mode=zero)
        rotary = ct.load(cache, (b, step, at), (1, KEYS, ROTARY), padding_mode=zero)
        rows, rotary = rows.reshape((KEYS, LATENT)), rotary.reshape((KEYS, ROTARY))
        score = ct.mma(query, rows.transpose(), ct.zeros((ROWS, KEYS), ct.float32))
        score = ct.mma(query_rotary, rotary.transpose(), score) * scale
        # Score: a soft cap, a bias or another mask would go here, before the maximum.
        place = step * KEYS + ct.arange(KEYS, dtype=ct.int32)
        score = ct.where(place.reshape((1, KEYS)) < T, score, -float("inf"))
        new = ct.maximum(best, ct.max(score, axis=1, keepdims=True))
        weight = ct.exp(score - new)
        shrink = ct.exp(best - new)
        total = total * shrink + ct.sum(weight, axis=1, keepdims=True)
        acc = ct.mma(weight.astype(ct.bfloat16), rows, acc * shrink)
        best = new
    # Finish: total holds the sink's share, so that the weights of keys sum to less than 1.
    ct.store(out, (b, group, 0), (acc / total).astype(ct.bfloat16).reshape((1, ROWS, LATENT)))


def inputs(device, b=32, h=128, t=4096):
    """One query token per head, absorbed, a cache that all heads share, and a logit per head."""
    q = torch.randn(b, h, LATENT + ROTARY, device=device)
    return {
        "q": q.bfloat16(),
        "cache": torch.randn(b, t, LATENT + ROTARY, device=device).bfloat16(),
        "sinks": 5 + torch.randn(h, device=device),
    }


def reference(q, cache, sinks):
    """Attention in fp32 with one more column of scores, whose weight falls away."""
    q, cache = q.float(), cache.float()
    scores = q @ cache.transpose(1, 2) * (128 + ROTARY) ** -0.5
    scores = torch.cat([scores, sinks[None, :, None].expand(len(q), -1, 1)], dim=-1)
    return torch.softmax(scores, dim=-1)[..., :-1] @ cache[..., :LATENT]


def launch(q, cache, sinks):
    """The kernel, launched as its users do."""
    (b, h, _), t = q.shape, cache.shape[1]
    out = torch.empty(b, h, LATENT, dtype=q.dtype, device=q.device)
    grid = (b, ct.cdiv(h, ROWS))
    sizes = ((128 + ROTARY) ** -0.5, t, ROWS, KEYS, LATENT, ROTARY)
    ct.launch(torch.cuda.current_stream(), grid, decode, (q, cache, sinks, out, *sizes))
    return out
