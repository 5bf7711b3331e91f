"""Attention, a cross entropy and a gated MLP in Triton, on small tensors against torch."""

import sys

import torch
from torch.nn import functional as F

torch.manual_seed(0)


def sage(n=128, causal=0):
    from sageattention import sageattn

    q, k, v = (torch.randn(1, 2, n, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    out = sageattn(q, k, v, is_causal=bool(causal)).float()
    wanted = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=bool(causal))
    error = (out - wanted).norm() / wanted.norm()
    assert error < 0.03, f"relative error {error:.3g}"


def cross_entropy(rows=48, classes=200, width=64):
    from cut_cross_entropy import linear_cross_entropy

    e, c = (
        torch.randn(n, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for n in (rows, classes)
    )
    wanted = torch.randint(0, classes, (rows,), device="cuda")
    loss = linear_cross_entropy(e, c, wanted)
    loss.backward()
    a, b = (x.detach().float().requires_grad_() for x in (e, c))
    plain = F.cross_entropy(a @ b.T, wanted)
    plain.backward()
    torch.testing.assert_close(loss.float(), plain, atol=2e-2, rtol=2e-2)
    for got, grad in ((e.grad, a.grad), (c.grad, b.grad)):
        assert (got.float() - grad).norm() < 3e-2 * grad.norm()


def swiglu(tokens=70, width=64, hidden=96):
    """Its operands come by TMA."""
    from flash_swiglu_mlp import flash_swiglu

    shapes = (2, tokens, width), (hidden, width), (hidden, width), (width, hidden)
    given = [torch.randn(*s, device="cuda", dtype=torch.float16) / 4 for s in shapes]
    plain = [x.float().requires_grad_() for x in given]
    out = flash_swiglu(*(x.requires_grad_() for x in given))
    gate, up = (F.linear(plain[0], x) for x in plain[1:3])
    wanted = F.linear(F.silu(gate) * up, plain[3])
    torch.testing.assert_close(out.float(), wanted, atol=2e-2, rtol=2e-2)
    grad = torch.randn_like(out)
    out.backward(grad)
    wanted.backward(grad.float())
    for got, x in zip(given, plain, strict=True):
        assert (got.grad.float() - x.grad).norm() < 2e-2 * x.grad.norm()


def entmax(version=1, causal=0, n=128):
    """Attention whose weights are those of entmax with alpha 1.5: most are 0."""
    from adasplash import adasplash_v1, adasplash_v2

    q, k, v = (torch.randn(1, 2, n, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    scores = q.float() @ k.float().mT / 16
    if causal:
        late = torch.ones(n, n, dtype=torch.bool, device="cuda").triu(1)
        scores = scores.masked_fill(late, -1e6)
    # Peters, Niculae and Martins (2019): of the sorted scores those that the threshold leaves.
    down = scores.sort(-1, True).values
    count = torch.arange(1, n + 1, device="cuda")
    mean, square = down.cumsum(-1) / count, (down * down).cumsum(-1) / count
    low = mean - ((1 - count * (square - mean * mean)) / count).clamp(min=0).sqrt()
    last = (low <= down).sum(-1, True) - 1
    wanted = (scores - low.gather(-1, last)).clamp(min=0) ** 2 @ v.float()
    out = adasplash_v2(q, k, v) if version == 2 else adasplash_v1(q, k, v, is_causal=bool(causal))
    error = (out.float() - wanted).norm() / wanted.norm()
    assert error < 0.01, f"relative error {error:.3g}"


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
