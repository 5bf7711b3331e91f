"""Latent decode as an adopted kernel: the three functions that a kernel of yours needs.

``nox -s check -- examples/adopted_mla.py`` compares it with ``reference`` at the sizes of
``CHECKS``. To bring yours, put its call into ``launch`` and leave ``inputs`` and ``reference``.
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
    q, cache, out, scale: float, T: ct.Constant[int], ROWS: ct.Constant[int],
    KEYS: ct.Constant[int], LATENT: ct.Constant[int], ROTARY: ct.Constant[int],
):  # fmt: skip
    """A block per sequence and group of heads."""
    b, group = ct.bid(0), ct.bid(1)
    zero = ct.PaddingMode.ZERO
    at = LATENT // ROTARY  # where the rotary part begins, in tiles of its width
    query = ct.load(q, (b, group, 0), (1, ROWS, LATENT), padding_mode=zero)
    query_rotary = ct.load(q, (b, group, at), (1, ROWS, ROTARY), padding_mode=zero)
    query, query_rotary = query.reshape((ROWS, LATENT)), query_rotary.reshape((ROWS, ROTARY))
    best = ct.full((ROWS, 1), -1e30, ct.float32)
    total = ct.zeros((ROWS, 1), ct.float32)
    acc = ct.zeros((ROWS, LATENT), ct.float32)
    for step in range(ct.cdiv(T, KEYS)):
        rows = ct.load(cache, (b, step, 0), (1, KEYS, LATENT), padding_mode=zero)
        rotary = ct.load(cache, (b, step, at), (1, KEYS, ROTARY), padding_mode=zero)
        rows, rotary = rows.reshape((KEYS, LATENT)), rotary.reshape((KEYS, ROTARY))
        score = ct.mma(query, rows.transpose(), ct.zeros((ROWS, KEYS), ct.float32))
        score = ct.mma(query_rotary, rotary.transpose(), score) * scale
        place = step * KEYS + ct.arange(KEYS, dtype=ct.int32)
        score = ct.where(place.reshape((1, KEYS)) < T, score, -float("inf"))
        new = ct.maximum(best, ct.max(score, axis=1, keepdims=True))
        weight = ct.exp(score - new)
        shrink = ct.exp(best - new)
        total = total * shrink + ct.sum(weight, axis=1, keepdims=True)
        acc = ct.mma(weight.astype(ct.bfloat16), rows, acc * shrink)
        best = new
    ct.store(out, (b, group, 0), (acc / total).astype(ct.bfloat16).reshape((1, ROWS, LATENT)))


def inputs(device, b=32, h=128, t=4096):
    """One query token per head, absorbed, and a contiguous cache that all heads share."""
    q = torch.randn(b, h, LATENT + ROTARY, device=device)
    return {
        "q": q.bfloat16(),
        "cache": torch.randn(b, t, LATENT + ROTARY, device=device).bfloat16(),
    }


def reference(q, cache):
    """Attention in fp32: a cache row is the key, its first 512 numbers the value."""
    q, cache = q.float(), cache.float()
    weight = torch.softmax(q @ cache.transpose(1, 2) * (128 + ROTARY) ** -0.5, dim=-1)
    return weight @ cache[..., :LATENT]


def launch(q, cache):
    """The kernel, launched as its users do."""
    (b, h, _), t = q.shape, cache.shape[1]
    out = torch.empty(b, h, LATENT, dtype=q.dtype, device=q.device)
    grid = (b, ct.cdiv(h, ROWS))
    sizes = ((128 + ROTARY) ** -0.5, t, ROWS, KEYS, LATENT, ROTARY)
    ct.launch(torch.cuda.current_stream(), grid, decode, (q, cache, out, *sizes))
    return out
