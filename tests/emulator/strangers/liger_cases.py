"""Liger's Triton kernels on small tensors, held against torch."""

import sys

import torch
from torch.nn import functional as F

torch.manual_seed(0)


def near(a, b, tolerance=2e-2):
    torch.testing.assert_close(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=True)


def both(out, expected, inputs, tolerance=2e-2):
    near(out, expected, tolerance)
    grad = torch.randn_like(out)
    # First what is expected: Liger's backward writes over what it was given.
    wanted = torch.autograd.grad(expected, inputs, grad.clone())
    for a, b in zip(torch.autograd.grad(out, inputs, grad), wanted, strict=True):
        near(a, b, tolerance)


def rms_norm(m=8, n=384):
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    x, w = random(m, n), random(n)
    out = LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False)
    both(out, F.rms_norm(x, (n,), w, 1e-6), (x, w))


def layer_norm(m=8, n=256):
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    x, w, b = random(m, n), random(n), random(n)
    out = LigerLayerNormFunction.apply(x, w, b, 1e-6)
    both(out, F.layer_norm(x, (n,), w, b, 1e-6), (x, w, b))


def swiglu(m=6, n=320):
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    a, b = random(m, n), random(m, n)
    both(LigerSiLUMulFunction.apply(a, b), F.silu(a) * b, (a, b))


def geglu(m=6, n=320):
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    a, b = random(m, n), random(m, n)
    both(LigerGELUMulFunction.apply(a, b), F.gelu(a, approximate="tanh") * b, (a, b))


def softmax(m=5, n=300):
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    x = random(m, n)
    both(LigerSoftmaxFunction.apply(x), torch.softmax(x, -1), (x,))


def cross_entropy(m=7, n=500):
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    x, target = random(m, n), torch.randint(0, n, (m,), device="cuda")
    expected = F.cross_entropy(x, target)
    expected_grad = torch.autograd.grad(expected, x)[0]
    y = x.detach().clone().requires_grad_()
    loss = LigerCrossEntropyFunction.apply(y, target, None)[0]
    near(loss, expected)
    near(torch.autograd.grad(loss, y)[0], expected_grad)


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
