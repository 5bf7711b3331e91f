"""CuTe DSL kernels of cuDNN's front end on small tensors, held against torch."""

import math
import sys

import torch

torch.manual_seed(0)
BF16 = torch.bfloat16


def near(a, b, tolerance=3e-2):
    torch.testing.assert_close(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def random(*shape, dtype=BF16, grad=False):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def blocks(h, s, t, block, count):
    """Which key blocks each query block attends to, and the same per score."""
    chosen = torch.stack([torch.randperm(t // block)[:count] for _ in range(h * (s // block))])
    chosen = chosen.sort(-1).values.reshape(1, h, s // block, count)
    seen = torch.zeros(1, h, s // block, t // block, dtype=torch.bool).scatter(-1, chosen, True)
    seen = seen.repeat_interleave(block, 2).repeat_interleave(block, 3)
    return chosen.to(device="cuda", dtype=torch.int32), seen


def attention(q, k, v, seen):
    scores = q.float() @ k.float().mT / math.sqrt(q.shape[-1])
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ v.float()


def block_sparse(block=64, s=128, t=256, h=2, d=64, count=2):
    from cudnn.block_sparse_attention.api import block_sparse_attention_forward as tried

    q, k, v = random(1, h, s, d), random(1, h, t, d), random(1, h, t, d)
    chosen, seen = blocks(h, s, t, block, count)
    out = tried(q, k, v, chosen, sparse_block_size=block)["o_tensor"]
    near(out, attention(q, k, v, seen))


def block_sparse_128():
    block_sparse(128, 128, 384, 1, 128, 2)


def block_sparse_backward(block=64, s=128, t=128, h=1, d=128, count=1):
    from cudnn.block_sparse_attention import api

    q, k, v = (random(1, h, n, d, grad=True) for n in (s, t, t))
    chosen, seen = blocks(h, s, t, block, count)
    expected, grad = attention(q, k, v, seen), random(1, h, s, d)
    with torch.no_grad():
        done = api.block_sparse_attention_forward(q, k, v, chosen, sparse_block_size=block)
        out, lse = done["o_tensor"], done["lse_tensor"]
        near(out, expected)
        back = api.block_sparse_attention_backward(
            grad, q, k, v, out, lse, chosen, sparse_block_size=block
        )
    wanted = torch.autograd.grad(expected, (q, k, v), grad.float())
    for name, b in zip(("dq_tensor", "dk_tensor", "dv_tensor"), wanted, strict=True):
        near(back[name], b, 6e-2)


def indexer(s=64, t=128, h=64, d=128, ratio=4):
    from cudnn.deepseek_sparse_attention.indexer_forward.api import indexer_forward_wrapper as tried

    q, k, w = random(1, s, h, d), random(1, t, 1, d), random(1, s, h)
    scores = tried(q, k, w, ratio=ratio)["scores"]
    each = torch.relu(torch.einsum("bshd,btd->bsht", q.float(), k[:, :, 0].float()))
    want = torch.einsum("bsht,bsh->bst", each, w.float())
    seen = torch.arange(t)[None] < (torch.arange(s)[:, None] + 1) // ratio
    kept = torch.isfinite(scores[0])
    assert torch.equal(kept.cpu(), seen), "other keys than the causal ones are scored"
    near(scores[0][seen], want[0][seen], 0.5)


def indexer_topk(rows=3, n=4096, k=512):
    from cudnn.deepseek_sparse_attention.indexer_top_k.api import indexer_top_k_wrapper as tried

    x = random(rows, n, dtype=torch.float32)
    lengths = torch.tensor([n, 1000, 2048], dtype=torch.int32, device="cuda")
    found = tried(x, lengths, k)
    for i in range(rows):
        got, want = x[i, found["indices"][i].long()], torch.topk(x[i, : int(lengths[i])], k).values
        near(got.sort().values, want.sort().values, 1e-6)
        near(found["values"][i].sort().values, want.sort().values, 1e-6)


def compactify(rows=5, n=64):
    from cudnn.deepseek_sparse_attention.indexer_top_k.api import compactify_wrapper as tried

    x = torch.randint(0, 100, (rows, n), device="cuda", dtype=torch.int32)
    x = torch.where(torch.rand(rows, n) < 0.4, -1, x)
    done = tried(x)
    for row, packed, length in zip(x, done["indices"], done["topk_length"], strict=True):
        kept = row[row >= 0]
        assert int(length) == len(kept)
        assert torch.equal(packed[: len(kept)].sort().values, kept.sort().values)


def selection(s=64, h=1, h_q=16, d=64, block=64):
    from cudnn.native_sparse_attention.selection.api import selection_attention_wrapper as tried

    q, k, v = random(s, h_q, d), random(s, h, d), random(s, h, d)
    starts = torch.tensor([0, s], dtype=torch.int32, device="cuda")
    chosen = torch.zeros(s, h, 1, dtype=torch.int32, device="cuda")
    counts = torch.ones(s, h, dtype=torch.int32, device="cuda")
    done = tried(q, k, v, chosen, counts, starts, starts, block_size=block)
    seen = torch.ones(s, s, dtype=torch.bool)
    q, k, v = (x.expand(s, h_q, d).transpose(0, 1)[None] for x in (q, k, v))
    near(done["o_tensor"], attention(q, k, v, seen)[0].transpose(0, 1))


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
