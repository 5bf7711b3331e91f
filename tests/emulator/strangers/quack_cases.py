"""quack's own functions on small tensors, held against torch."""

import sys

import torch
from torch.nn import functional as F

torch.manual_seed(0)
BF16 = torch.bfloat16


def near(a, b, tolerance=2e-2):
    torch.testing.assert_close(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def random(*shape, dtype=BF16, grad=False):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def softmax(m=8, n=1000, dtype=BF16):
    from quack import softmax as tried

    x = random(m, n, dtype=dtype, grad=True)
    y, dy = tried(x), random(m, n, dtype=dtype)
    near(y, torch.softmax(x.float(), -1))
    (dx,) = torch.autograd.grad(y, x, dy)
    expected = torch.autograd.grad(torch.softmax(x.float(), -1), x, dy.float())[0]
    near(dx, expected)


def rmsnorm(m=6, n=768):
    from quack import rmsnorm as tried

    x, w = random(m, n, grad=True), random(n, dtype=torch.float32, grad=True)
    y, dy = tried(x, w), random(m, n)
    expected = F.rms_norm(x.float(), (n,), w, 1e-6)
    near(y, expected)
    for a, b in zip(
        torch.autograd.grad(y, (x, w), dy),
        torch.autograd.grad(expected, (x, w), dy.float()),
        strict=True,
    ):
        near(a, b, 5e-2)


def rmsnorm_residual(m=5, n=512):
    from quack import rmsnorm as tried

    x, r, w = random(m, n), random(m, n), random(n, dtype=torch.float32)
    y, total = tried(x, w, residual=r, prenorm=True)
    near(total, x.float() + r.float())
    near(y, F.rms_norm(x.float() + r.float(), (n,), w, 1e-6))


def layernorm(m=7, n=640):
    from quack.rmsnorm import layernorm_fwd

    x, w = random(m, n), random(n, dtype=torch.float32)
    near(layernorm_fwd(x, w, eps=1e-6), F.layer_norm(x.float(), (n,), w, None, 1e-6))


def cross_entropy(m=9, n=1024):
    from quack import cross_entropy as tried

    x = random(m, n, grad=True)
    target = torch.randint(0, n, (m,), device="cuda")
    loss = tried(x, target, reduction="none")
    expected = F.cross_entropy(x.float(), target, reduction="none")
    near(loss, expected)
    (dx,) = torch.autograd.grad(loss.sum(), x)
    near(dx, torch.autograd.grad(expected.sum(), x)[0])


def topk(m=5, n=256, k=8):
    from quack.topk import topk as tried

    x = random(m, n)
    values, indices = tried(x, k)
    near(values, torch.topk(x, k).values)
    near(x.gather(1, indices.long()), values)


def rotary(b=2, s=16, h=2, d=64):
    from quack.rotary import apply_rotary_emb

    x = random(b, s, h, d)
    angle = torch.rand(s, d // 2, device="cuda") * 6
    cos, sin = angle.cos().to(BF16), angle.sin().to(BF16)
    x1, x2 = x.float().chunk(2, -1)
    c, s_ = cos.float()[None, :, None], sin.float()[None, :, None]
    near(apply_rotary_emb(x, cos, sin), torch.cat([x1 * c - x2 * s_, x1 * s_ + x2 * c], -1))


def gemm(m=200, n=136, k=128):
    from quack.gemm_interface import gemm as tried

    a, b = random(m, k), random(k, n)
    near(tried(a, b, tuned=False), a.float() @ b.float(), 0.15)


def gemm_batched(batch=2, m=128, n=128, k=96):
    from quack.gemm_interface import gemm as tried

    a, b = random(batch, m, k), random(batch, k, n)
    near(tried(a, b, tuned=False), a.float() @ b.float(), 0.15)


def gemm_add(m=128, n=192, k=64):
    from quack.gemm_interface import gemm_add as tried

    a, b, c = random(m, k), random(k, n), random(m, n)
    near(tried(a, b, c, tuned=False), a.float() @ b.float() + c.float(), 0.15)


def gemm_act(m=128, n=128, k=64):
    from quack.gemm_interface import gemm_act as tried

    a, b = random(m, k), random(k, n)
    before, after = tried(a, b, activation="relu", tuned=False)
    near(before, a.float() @ b.float(), 0.15)
    near(after, torch.relu(a.float() @ b.float()), 0.15)


def gemm_gated(m=128, n=128, k=64):
    from quack.gemm_interface import gemm_act as tried

    a, b = random(m, k), random(k, n)
    before, after = tried(a, b, activation="swiglu", tuned=False)
    expected = a.float() @ b.float()
    near(before, expected, 0.15)
    near(after, F.silu(expected[:, ::2]) * expected[:, 1::2], 0.3)


def gemm_symmetric(m=256, k=64):
    from quack.gemm_interface import gemm_symmetric as tried

    a = random(m, k)
    near(tried(a, a.mT), a.float() @ a.float().mT, 0.2)


def gemm_varlen(k=64, n=128):
    from quack.gemm_interface import gemm as tried

    starts = torch.tensor([0, 100, 100, 228], dtype=torch.int32, device="cuda")
    a, b = random(228, k), random(3, k, n)
    out = tried(a, b, cu_seqlens_m=starts, tuned=False)
    for i in range(3):
        part = slice(int(starts[i]), int(starts[i + 1]))
        near(out[part], a[part].float() @ b[i].float(), 0.15)


def linear(m=96, k=64, n=128):
    from quack.linear import linear_func

    x, w = random(m, k, grad=True), random(n, k, grad=True)
    y, dy = linear_func(x, w, tuned=False), random(m, n)
    near(y, x.float() @ w.float().mT, 0.15)
    for a, b in zip(
        torch.autograd.grad(y, (x, w), dy),
        (dy.float() @ w.float(), dy.float().mT @ x.float()),
        strict=True,
    ):
        near(a, b, 0.2)


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
