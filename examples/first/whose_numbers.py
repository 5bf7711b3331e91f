"""Inputs whose output says which sequence and which head a decode kernel read; plain torch."""

import torch


def marked(b=2, h=4, t=96):
    """Queries [b, 1, h, 576] and a cache [b, t, 576]: sequence i, head j has to give 100 i + j."""
    q, cache = torch.zeros(b, 1, h, 576), torch.zeros(b, t, 576)
    cache[..., :512] = 100 * torch.arange(b)[:, None, None] + torch.arange(t)[:, None]
    for j in range(h):  # head j sees key j alone
        q[:, :, j, 512 + j] = 1000.0
        cache[:, j, 512 + j] = 1.0
    return q.bfloat16(), cache.bfloat16()


def right(q, cache):
    """MLA decode in fp32."""
    q, cache = q.float(), cache.float()
    weights = torch.einsum("bshd,btd->bsht", q, cache).softmax(-1)
    return torch.einsum("bsht,btd->bshd", weights, cache[..., :512])


def wrong(q, cache):
    """The same, with the first sequence's keys and values for all."""
    return right(q, cache[:1].expand_as(cache))


q, cache = marked()
print(right(q, cache)[:, 0, :, 0].int().tolist())
print(wrong(q, cache)[:, 0, :, 0].int().tolist())
