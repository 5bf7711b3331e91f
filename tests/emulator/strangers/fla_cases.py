"""flash-linear-attention's Triton kernels on small tensors, held against its own loops in torch."""

import sys

import torch
from torch.nn import functional as F

torch.manual_seed(0)


def near(a, b, tolerance=2e-2):
    torch.testing.assert_close(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def random(*shape, grad=False):
    return torch.randn(*shape, device="cuda", requires_grad=grad)


def linear_attention(q, k, v, decay, beta=None):
    """Token after token; with ``beta`` the delta rule."""
    q, k, v, decay = (x.transpose(1, 2).float() for x in (q, k, v, decay))
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    out = []
    for t in range(q.shape[2]):
        state = state * decay[:, :, t].exp()[..., None]
        new = v[:, :, t]
        if beta is not None:
            new = (new - (state * k[:, :, t, :, None]).sum(-2)) * beta.transpose(1, 2)[
                :, :, t, None
            ]
        state = state + k[:, :, t, :, None] * new[..., None, :]
        out.append((q[:, :, t, :, None] * state).sum(-2))
    return torch.stack(out, 2).transpose(1, 2) * q.shape[-1] ** -0.5


def gla(b=1, t=70, h=1, k=32, v=32):
    from fla.ops.gla import fused_recurrent_gla

    q, key, value = random(b, t, h, k), random(b, t, h, k), random(b, t, h, v)
    gate = F.logsigmoid(random(b, t, h, k))
    out, _ = fused_recurrent_gla(q, key, value, gate)
    near(out, linear_attention(q, key, value, gate))


def chunk_gla(b=1, t=70, h=1, k=32, v=32):
    from fla.ops.gla import chunk_gla as tried

    q, key, value = random(b, t, h, k), random(b, t, h, k), random(b, t, h, v)
    gate = F.logsigmoid(random(b, t, h, k))
    out, _ = tried(q, key, value, gate)
    near(out, linear_attention(q, key, value, gate), 5e-2)


def delta_rule(b=1, t=70, h=1, k=32, v=32):
    from fla.ops.delta_rule import fused_recurrent_delta_rule

    q, value = random(b, t, h, k), random(b, t, h, v)
    key, beta = F.normalize(random(b, t, h, k), dim=-1), torch.rand(b, t, h, device="cuda")
    out, _ = fused_recurrent_delta_rule(q, key, value, beta)
    near(out, linear_attention(q, key, value, torch.zeros_like(key), beta))


def rms_norm(m=8, n=128):
    from fla.modules.layernorm import rms_norm as tried

    x, w = random(m, n, grad=True), random(n, grad=True)
    out, expected = tried(x, w, None), F.rms_norm(x, (n,), w, 1e-5)
    near(out, expected)
    grad = torch.randn_like(out)
    for a, c in zip(
        torch.autograd.grad(out, (x, w), grad),
        torch.autograd.grad(expected, (x, w), grad),
        strict=True,
    ):
        near(a, c)


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
