"""Attention in 8 bits and a fused cross entropy, both in Triton, on small tensors against torch."""

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


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
