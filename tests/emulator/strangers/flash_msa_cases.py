"""Flash-MSA's kernels for sparse attention, in the CuTe DSL, on small tensors against torch."""

import sys

import torch

torch.manual_seed(0)
BLOCK, WIDTH = 128, 128
SCALE = WIDTH**-0.5


def tensors(s, *heads):
    return [torch.randn(1, h, s, WIDTH, device="cuda", dtype=torch.bfloat16) for h in heads]


def scores(q, k):
    """Causal scores of all heads [1, h, s, s]."""
    x = q.float() @ k.float().repeat_interleave(q.shape[1] // k.shape[1], 1).mT * SCALE
    late = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    return x.masked_fill(late, -torch.inf)


def select(s=256, top=2):
    from flash_msa.msa_select_cutedsl import select_blocks

    q, k = tensors(s, 2, 1)
    blocks = s // BLOCK
    got = select_blocks(q, k, scale=SCALE, num_blocks=blocks, top_k_blocks=top)
    best = scores(q, k).to(q.dtype).float().unflatten(-1, (blocks, BLOCK)).amax(-1)
    own = torch.arange(s, device="cuda") // BLOCK
    best.scatter_(3, own.expand(1, 2, s)[..., None], torch.inf)
    # A block's best scores are all that counts: equal ones, and rounding, may change the order.
    values = best.gather(3, got.long().clamp(max=blocks - 1)).masked_fill(got == blocks, -torch.inf)
    wanted = best.topk(top, -1).values
    torch.testing.assert_close(values.sort(-1, True).values, wanted, atol=2e-2, rtol=2e-2)


def backward(s=128, heads=2, proxies=1):
    from flash_msa.msa_backward_cutedsl import _derive_head_tiling, run_fused_backward
    from flash_msa.warmup.msa_backward_cutedsl_warmup import _dense_causal_schedule

    q, k, v, qp, kp, grad = tensors(s, heads, 1, 1, proxies, 1, heads)
    plain = [x.float().requires_grad_() for x in (q, k, v)]
    main, proxy = scores(*plain[:2]), scores(qp, kp)
    weights = main.softmax(-1)
    out = weights @ plain[2].repeat_interleave(heads, 1)
    out.backward(grad.float())
    chunk = _derive_head_tiling(heads, 1, proxies)[1]
    meta, ids = _dense_causal_schedule(
        batch=1, n_proxy_heads=proxies, seq_len=s, query_chunk=chunk, device=q.device
    )
    delta = (out * grad.float()).sum(-1)
    sums = [x.logsumexp(-1) for x in (main, proxy)]
    got = run_fused_backward(
        *(qp, kp, q, k, v, grad, *sums, delta, meta, ids), scale=SCALE, grad_kl_scale=1.0
    )
    # The proxy's weights are drawn to the mean of those of its heads.
    mean = weights.unflatten(1, (proxies, heads // proxies)).mean(2)
    pull = (proxy.softmax(-1) - mean) * SCALE
    wanted = [pull @ kp.float(), (pull.mT @ qp.float()).sum(1, True), *(x.grad for x in plain)]
    for name, mine, theirs in zip(("dqp", "dkp", "dq", "dk", "dv"), got, wanted, strict=True):
        error = (mine.float() - theirs).norm() / theirs.norm()
        assert error < 0.02, f"{name}: relative error {error:.3g}"


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
