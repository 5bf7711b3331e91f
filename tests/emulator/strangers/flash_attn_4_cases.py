"""FlashAttention 4 on small problems, held against torch."""

import math
import sys

import torch

torch.manual_seed(0)
BF16 = torch.bfloat16


def near(a, b, tolerance=3e-2):
    torch.testing.assert_close(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def random(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=BF16, requires_grad=grad)


def reference(q, k, v, causal=False, window=None, softcap=0.0):
    h, h_k = q.shape[2], k.shape[2]
    k, v = (x.float().repeat_interleave(h // h_k, 2) for x in (k, v))
    scores = torch.einsum("bshd,bthd->bhst", q.float(), k) / math.sqrt(q.shape[-1])
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    s, t = scores.shape[-2:]
    i, j = torch.arange(s)[:, None] + t - s, torch.arange(t)[None]
    hidden = torch.zeros(s, t, dtype=torch.bool)
    if causal:
        hidden |= j > i
    if window:
        hidden |= (j < i - window[0]) | (j > i + window[1])
    scores = scores.masked_fill(hidden, -math.inf)
    return torch.einsum("bhst,bthd->bshd", scores.softmax(-1), v)


def forward(s=128, t=200, h=2, h_k=2, d=64, causal=0, **more):
    from flash_attn.cute.interface import flash_attn_func

    q, k, v = random(1, s, h, d), random(1, t, h_k, d), random(1, t, h_k, d)
    with torch.no_grad():
        out = flash_attn_func(q, k, v, causal=bool(causal), **more)
    out = out[0] if isinstance(out, tuple) else out
    more.pop("num_splits", None)
    more.pop("pack_gqa", None)
    window = more.pop("window_size", None)
    near(out, reference(q, k, v, bool(causal), window, **more))


def causal():
    forward(200, 200, 2, 2, 128, 1)


def gqa():
    forward(64, 256, 4, 1, 64, 1, pack_gqa=True)


def window():
    forward(256, 256, 1, 1, 64, 0, window_size=(64, 32))


def softcap():
    forward(128, 128, 1, 1, 64, 0, softcap=15.0)


def splits():
    forward(64, 512, 1, 1, 64, 0, num_splits=2)


def varlen():
    from flash_attn.cute.interface import flash_attn_varlen_func

    starts = torch.tensor([0, 70, 200], dtype=torch.int32, device="cuda")
    q, k, v = (random(200, 2, 64) for _ in range(3))
    with torch.no_grad():
        out = flash_attn_varlen_func(
            q,
            k,
            v,
            cu_seqlens_q=starts,
            cu_seqlens_k=starts,
            max_seqlen_q=130,
            max_seqlen_k=130,
            causal=True,
        )
    out = out[0] if isinstance(out, tuple) else out
    for a, b in ((0, 70), (70, 200)):
        near(out[a:b][None], reference(q[a:b][None], k[a:b][None], v[a:b][None], True))


def backward(s=128, t=128, h=1, d=64, causal=0):
    from flash_attn.cute.interface import flash_attn_func

    q, k, v = (random(1, n, h, d, grad=True) for n in (s, t, t))
    out = flash_attn_func(q, k, v, causal=bool(causal))
    out = out[0] if isinstance(out, tuple) else out
    expected = reference(q, k, v, bool(causal))
    near(out, expected)
    grad = random(1, s, h, d)
    for a, b in zip(
        torch.autograd.grad(out, (q, k, v), grad),
        torch.autograd.grad(expected, (q, k, v), grad.float()),
        strict=True,
    ):
        near(a, b, 6e-2)


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
