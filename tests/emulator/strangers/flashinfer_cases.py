"""FlashInfer's CuTe DSL and Triton kernels on small tensors, held against torch."""

import sys

import torch
from torch.nn import functional as F

torch.manual_seed(0)
BF16, F32 = torch.bfloat16, torch.float32


def near(a, b, tolerance=2e-2):
    torch.testing.assert_close(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def random(*shape, dtype=BF16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def norm(x, w, eps=1e-6, bias=0.0):
    return F.rms_norm(x.float(), (x.shape[-1],), w.float() + bias, eps)


def rmsnorm(m=9, n=1024):
    import flashinfer

    x, w = random(m, n), random(n)
    near(flashinfer.rmsnorm(x, w), norm(x, w))


def rmsnorm_heads(m=5, h=3, n=128):
    import flashinfer

    x, w = random(m, h, n), random(n)
    near(flashinfer.rmsnorm(x, w), norm(x, w))


def rmsnorm_quant(m=6, n=512):
    import flashinfer

    x, w = random(m, n), random(n)
    out = torch.empty(m, n, device="cuda", dtype=torch.float8_e4m3fn)
    flashinfer.norm.rmsnorm_quant(out, x, w, torch.tensor([0.5], device="cuda"))
    near(out, (norm(x, w) / 0.5).clamp(-448, 448), 0.07)


def fused_add_rmsnorm(m=7, n=768):
    import flashinfer

    x, r, w = random(m, n), random(m, n), random(n)
    total = x.float() + r.float()
    flashinfer.fused_add_rmsnorm(x, r, w)
    near(r, total)
    near(x, norm(total, w))


def gemma_rmsnorm(m=4, n=640):
    import flashinfer

    x, w = random(m, n), random(n)
    near(flashinfer.gemma_rmsnorm(x, w), norm(x, w, bias=1.0), 4e-2)


def gemma_fused_add_rmsnorm(m=4, n=256):
    import flashinfer

    x, r, w = random(m, n), random(m, n), random(n)
    total = x.float() + r.float()
    flashinfer.gemma_fused_add_rmsnorm(x, r, w)
    near(r, total)
    near(x, norm(total, w, bias=1.0), 4e-2)


def layernorm(m=6, n=512):
    import flashinfer

    x, w, b = random(m, n), random(n, dtype=F32), random(n, dtype=F32)
    near(flashinfer.layernorm(x, w, b), F.layer_norm(x.float(), (n,), w, b, 1e-6), 4e-2)


def mxfp8(m=64, n=256):
    import flashinfer

    x = random(m, n)
    small, scales = flashinfer.mxfp8_quantize(x, False, backend="cute-dsl")
    blocks = scales.view(torch.uint8).flatten()[: m * n // 32].reshape(m, n // 32, 1)
    back = small.float().reshape(m, n // 32, 32) * torch.exp2(blocks.float() - 127)
    near(back.reshape(m, n), x, 0.08)


def gated_step(q, k, v, a, b, decay, bias, state):
    """One token of the gated delta rule, states [B, H, V, K] in float."""
    heads = v.shape[1]
    q, k = (
        F.normalize(x.float(), dim=-1).repeat_interleave(heads // x.shape[1], 1) for x in (q, k)
    )
    keep = torch.exp(-decay.exp() * F.softplus(a.float() + bias))
    state = state * keep[..., None, None]
    new = (v.float() - (state * k[:, :, None]).sum(-1)) * b.float().sigmoid()[..., None]
    state = state + new[..., None] * k[:, :, None]
    return (state * q[:, :, None]).sum(-1) * q.shape[-1] ** -0.5, state


def gdn(b, t, h, hv, d):
    q, k, v = random(b, t, h, d), random(b, t, h, d), random(b, t, hv, d)
    return q, k, v, random(b, t, hv), random(b, t, hv), random(hv, dtype=F32), random(hv, dtype=F32)


def gdn_decode(b=2, h=2, hv=4, d=128):
    from flashinfer.gdn_decode import gated_delta_rule_decode_pretranspose as tried

    q, k, v, a, beta, decay, bias = gdn(b, 1, h, hv, d)
    state = random(b, hv, d, d, dtype=F32)
    want, after = gated_step(q[:, 0], k[:, 0], v[:, 0], a[:, 0], beta[:, 0], decay, bias, state)
    out, left = tried(q, k, v, state, decay, a, bias, beta)
    near(out[:, 0], want, 3e-2)
    near(left, after)


def gdn_decode_keys_first(b=2, h=2, hv=4, d=128):
    from flashinfer.gdn_decode import gated_delta_rule_decode as tried

    q, k, v, a, beta, decay, bias = gdn(b, 1, h, hv, d)
    state = random(b, hv, d, d, dtype=F32)
    want, after = gated_step(
        q[:, 0], k[:, 0], v[:, 0], a[:, 0], beta[:, 0], decay, bias, state.mT.contiguous()
    )
    out, left = tried(q, k, v, state, decay, a, bias, beta)
    near(out[:, 0], want, 3e-2)
    near(left, after.mT)


def gdn_decode_bf16(b=1, h=2, hv=4, d=128, t=1):
    from flashinfer.gdn_decode import gated_delta_rule_decode_pretranspose as tried

    q, k, v, a, beta, decay, bias = gdn(b, t, h, hv, d)
    state = random(b, hv, d, d)
    after = state.float()
    wants = []
    for i in range(t):
        want, after = gated_step(q[:, i], k[:, i], v[:, i], a[:, i], beta[:, i], decay, bias, after)
        wants.append(want)
    out, left = tried(q, k, v, state, decay, a, bias, beta)
    near(out, torch.stack(wants, 1), 6e-2)
    near(left, after, 6e-2)


def gdn_tokens(b=2, h=2, hv=4, d=128, t=3):
    from flashinfer.gdn_decode import gated_delta_rule_mtp as tried

    q, k, v, a, beta, decay, bias = gdn(b, t, h, hv, d)
    pool = random(b + 1, hv, d, d, dtype=F32)
    rows = torch.tensor([2, 0], dtype=torch.int32, device="cuda")
    after, wants = pool[rows.long()], []
    for i in range(t):
        want, after = gated_step(q[:, i], k[:, i], v[:, i], a[:, i], beta[:, i], decay, bias, after)
        wants.append(want)
    out, left = tried(q, k, v, pool, rows, decay, a, bias, beta, disable_state_update=False)
    near(out, torch.stack(wants, 1), 6e-2)
    near(left[rows.long()], after, 3e-2)


def gdn_prefill(t=100, h=1, d=128):
    from flashinfer.gdn_prefill import chunk_gated_delta_rule as tried

    q, v = random(t, h, d), random(t, h, d)
    k = F.normalize(random(t, h, d).float(), dim=-1).to(BF16)
    gate, beta = torch.rand(t, h, device="cuda") * 0.2 + 0.8, torch.rand(t, h, device="cuda")
    starts = torch.tensor([0, t], dtype=torch.int64, device="cuda")
    out = tried(q, k, v, gate, beta, cu_seqlens=starts, use_cp=False)
    state, wants = torch.zeros(h, d, d), []
    for i in range(t):
        state = state * gate[i][:, None, None]
        new = (v[i].float() - (state * k[i].float()[:, None]).sum(-1)) * beta[i][:, None]
        state = state + new[..., None] * k[i].float()[:, None]
        wants.append((state * q[i].float()[:, None]).sum(-1) * d**-0.5)
    near(out, torch.stack(wants), 3e-2)


def kda(b=2, h=2, d=128, t=1):
    from flashinfer import recurrent_kda as tried

    q, k, v = random(b, t, h, d), random(b, t, h, d), random(b, t, h, d)
    gate, beta = -torch.rand(b, t, h, d, device="cuda"), torch.rand(b, t, h, device="cuda")
    state = random(b, h, d, d)
    out, _ = tried(
        q, k, v, gate.to(BF16), beta.to(BF16), initial_state=state.clone(),
        output_final_state=True, backend="cute-dsl",
    )  # fmt: skip
    wants, after = [], state.float()
    for i in range(t):
        a, c = (F.normalize(x[:, i].float(), dim=-1) for x in (q, k))
        after = after * gate[:, i].to(BF16).float().exp()[:, :, None]
        new = v[:, i].float() - (after * c[:, :, None]).sum(-1)
        new = new * beta[:, i].to(BF16).float()[..., None]
        after = after + new[..., None] * c[:, :, None]
        wants.append((after * a[:, :, None]).sum(-1) * d**-0.5)
    near(out, torch.stack(wants, 1), 3e-2)


def triton_silu(m=6, n=256):
    from flashinfer.triton.activation import silu_and_mul as tried

    x = random(m, 2 * n)
    a, b = x.float().chunk(2, -1)
    near(tried(x), F.silu(a) * b)


def triton_norm(m=6, n=300):
    from flashinfer.triton.norm import rms_norm as tried

    x, w, out = random(m, n), random(n), torch.empty(m, n, device="cuda", dtype=BF16)
    tried(x, w, out, 1e-6)
    near(out, norm(x, w))


def triton_merge(s=5, h=2, d=64):
    from flashinfer.triton.cascade import merge_state as tried

    a, b = random(s, h, d, dtype=F32), random(s, h, d, dtype=F32)
    x, y = random(s, h, dtype=F32), random(s, h, dtype=F32)
    out, _ = tried(a, x, b, y)
    share = torch.stack([x, y]).mul(0.6931471805599453).softmax(0)[..., None]
    near(out, share[0] * a + share[1] * b)


def triton_gemm(m=200, n=136, k=96):
    from flashinfer.triton.sm_constraint_gemm import gemm_persistent as tried

    a, b = random(m, k), random(n, k)
    # Without c it is memory that may hold NaN, times 0.
    c = torch.zeros(m, n, device="cuda", dtype=BF16)
    near(tried(a, b.T, c, num_sms=2), a.float() @ b.float().T, 0.15)


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
