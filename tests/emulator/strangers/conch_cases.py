"""Conch's Triton kernels: attention over pages, norms, positions, products, against torch."""

import sys

import torch
from torch.nn import functional as F

torch.manual_seed(0)


def normal(*shape, dtype=torch.float16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def rms_norm(rows=5, width=200):
    from conch.ops.normalization.rms_norm import rms_norm

    x, w = normal(rows, width), normal(width)
    wanted = F.rms_norm(x.float(), (width,), w.float(), 1e-6)
    torch.testing.assert_close(rms_norm(x, w, 1e-6).float(), wanted, atol=5e-3, rtol=5e-3)


def add_norm(rows=5, width=200):
    from conch.ops.normalization.rms_norm import fused_add_rms_norm

    x, r, w = normal(rows, width), normal(rows, width), normal(width)
    total = x.float() + r.float()
    wanted = F.rms_norm(total, (width,), w.float(), 1e-6)
    out, kept = fused_add_rms_norm(x, r, w, 1e-6)
    torch.testing.assert_close(out.float(), wanted, atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(kept.float(), total, atol=1e-2, rtol=1e-2)


def rotary(tokens=7, heads=4, width=64):
    from conch.ops.embedding.rotary_embedding import rotary_embedding

    at = torch.randint(0, 50, (tokens,), device="cuda")
    q, k = normal(tokens, heads * width), normal(tokens, width)
    angle = torch.arange(50, device="cuda")[:, None] / 100 ** (
        torch.arange(width // 2, device="cuda") / (width // 2)
    )
    table = torch.cat([angle.cos(), angle.sin()], -1).half()

    def turned(x):
        a, b = x.float().unflatten(-1, (-1, width)).chunk(2, -1)
        cos, sin = (t[at][:, None].float() for t in table.chunk(2, -1))
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).flatten(1)

    wanted = turned(q), turned(k)
    for got, want in zip(rotary_embedding(at, q, k, width, table), wanted, strict=True):
        torch.testing.assert_close(got.float(), want, atol=1e-2, rtol=1e-2)


def paged(page=16, heads=4, groups=2, width=64, most=150):
    from conch.ops.attention.paged_attention import paged_attention

    lengths = torch.tensor([most, 1, 37], dtype=torch.int32, device="cuda")
    pages = -(-most // page)
    table = torch.randperm(3 * pages, device="cuda").view(3, pages).int()
    q, k, v = normal(3, heads, width), *(normal(3 * pages, page, groups, width) for _ in range(2))
    got = paged_attention(q, k, v, table, lengths, scale=width**-0.5)
    for i, n in enumerate(lengths.tolist()):
        own = [x[table[i].long()].flatten(0, 1)[:n].float() for x in (k, v)]
        keys, values = (x.repeat_interleave(heads // groups, 1).transpose(0, 1) for x in own)
        wanted = F.scaled_dot_product_attention(q[i, :, None].float(), keys, values)[:, 0]
        torch.testing.assert_close(got[i].float(), wanted, atol=5e-3, rtol=5e-3)


def scaled_gemm(m=33, n=48, k=64):
    from conch.ops.quantization.gemm import scaled_gemm

    a, b = (torch.randint(-99, 99, x, device="cuda", dtype=torch.int8) for x in ((m, k), (k, n)))
    rows, columns = torch.rand(m, 1, device="cuda") / 99, torch.rand(n, 1, device="cuda") / 99
    got = scaled_gemm(a, b, rows, columns, torch.float16)
    wanted = (a.float() @ b.float()) * rows * columns.T
    torch.testing.assert_close(got.float(), wanted, atol=2e-2, rtol=2e-3)


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
