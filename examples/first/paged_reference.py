"""Paged MLA decode in plain torch, output and log-sum-exp, to hold a kernel of your own to."""

import torch


def paged_mla(q, cache, table, lengths, scale, latent=512, causal=True):
    """Attend from q [b, s, h, 576] to cache [pages, page, 576] by table [b, most pages].

    Returns the output [b, s, h, 512] and its log-sum-exp [b, h, s].
    The last ``s`` of a sequence's tokens are the query tokens. The log-sum-exp is natural.
    """
    b, s, h, _ = q.shape
    out = torch.zeros(b, s, h, latent)
    lse = torch.full((b, h, s), -torch.inf)
    for i, length in enumerate(lengths.tolist()):
        if length == 0:
            continue  # Rows that see no key are 0, and their log-sum-exp is minus infinity.
        keys = cache[table[i].long()].flatten(0, 1)[:length].float()  # [t, 576]
        scores = torch.einsum("shd,td->hst", q[i].float(), keys) * scale
        if causal:
            ends = length - s + torch.arange(s)  # the last key that each query token sees
            scores.masked_fill_(torch.arange(length) > ends[:, None], -torch.inf)
        lse[i] = scores.logsumexp(-1)
        weights = (scores - lse[i][..., None]).exp().nan_to_num(0.0)  # no key seen: 0
        out[i] = torch.einsum("hst,td->shd", weights, keys[:, :latent])
    return out, lse


torch.manual_seed(0)
b, s, h, page, pages = 3, 2, 4, 64, 8
q, cache = torch.randn(b, s, h, 576).bfloat16(), torch.randn(pages, page, 576).bfloat16()
table = torch.randperm(pages)[: b * 2].reshape(b, 2)
lengths = torch.tensor([1, 65, 128])
out, lse = paged_mla(q, cache, table, lengths, 192**-0.5)

keys = cache[table[2]].flatten(0, 1).float()[:, None].expand(-1, h, -1).transpose(0, 1)
mask = torch.arange(128) <= 126 + torch.arange(s)[:, None]
one = torch.nn.functional.scaled_dot_product_attention(
    q[2].float().transpose(0, 1), keys, keys[..., :512], attn_mask=mask, scale=192**-0.5
)
print("as torch's attention:", torch.allclose(out[2].transpose(0, 1), one, atol=1e-4))
