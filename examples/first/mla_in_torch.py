"""MLA decode in torch: absorbed as decompressed, tile by tile, in parts, over chosen tokens."""

import torch

H, LATENT, ROTARY, D, T = 128, 512, 64, 128, 1000  # DeepSeek-V3, and 1,000 cached tokens.
SCALE = (D + ROTARY) ** -0.5  # Of a key before absorption: 192.


def attend(q, rows):
    """One block: online softmax over tiles of 64 rows, whose first 512 columns are V."""
    best, total, acc = torch.full((H, 1), -1e30), torch.zeros(H, 1), torch.zeros(H, LATENT)
    for tile in rows.split(64):
        score = q @ tile.T * SCALE  # [128, 64], over all 576 columns
        new = torch.maximum(best, score.amax(1, keepdim=True))
        weight, shrink = (score - new).exp(), (best - new).exp()
        total = total * shrink + weight.sum(1, keepdim=True)
        acc = acc * shrink + weight @ tile[:, :LATENT]
        best = new
    return acc / total, best + total.log()  # output and LSE of this part


def decode(q, rows, parts=4):
    """Split-KV: a block per part, then the combine."""
    done = [attend(q, part) for part in rows.chunk(parts)]
    outs, lses = (torch.stack(each) for each in zip(*done, strict=True))
    return (torch.softmax(lses, 0) * outs).sum(0)  # [128, 512]


torch.manual_seed(0)
q_nope, q_rotary, rows = torch.randn(H, D), torch.randn(H, ROTARY), torch.randn(T, LATENT + ROTARY)
w_uk, w_uv = torch.randn(H, D, LATENT) / LATENT**0.5, torch.randn(H, LATENT, D) / LATENT**0.5

absorbed = torch.einsum("hd,hdk->hk", q_nope, w_uk)  # 128 numbers per head become 512,
q = torch.cat([absorbed, q_rotary], 1)  # and 576 with the rotary part.
out = torch.einsum("hk,hkd->hd", decode(q, rows), w_uv)  # The model's: back to 128 per head.

latent, rotary = rows.split([LATENT, ROTARY], 1)
k = torch.cat([torch.einsum("tk,hdk->htd", latent, w_uk), rotary.expand(H, T, ROTARY)], 2)
v = torch.einsum("tk,hkd->htd", latent, w_uv)
full = torch.cat([q_nope, q_rotary], 1)[:, None] @ k.mT  # keys of 192, one per head and token
wanted = (torch.softmax(full * SCALE, -1) @ v)[:, 0]
print("absorbed as decompressed:", torch.allclose(out, wanted, atol=1e-4))

index_score = torch.randn(T)  # V3.2: an indexer gives these; a list for all heads.
chosen = index_score.topk(256, sorted=False).indices  # V3.2 keeps 2,048.
sparse = decode(q, rows[chosen])  # Rows are gathered; the rest is the same.
masked = (q @ rows.T * SCALE).index_fill(1, index_score.topk(T - 256, largest=False).indices, -1e30)
dense = torch.softmax(masked, -1) @ latent
print("chosen tokens as a mask:", torch.allclose(sparse, dense, atol=1e-4))
