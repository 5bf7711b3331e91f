"""Latent decode in the CuTe DSL as an adopted kernel: a warp per head, ordinary arithmetic.

``nox -s check -- examples/adopted_mla_cute.py`` compares it with ``reference``. It is for reading:
no tensor core, no TMA, and each head reads the cache by itself.
"""

from __future__ import annotations

import cutlass
import torch
from cutlass import Float32, cute
from cutlass.cute.runtime import from_dlpack

#: Values of a latent row, which are keys and values at once, and of its rotary part.
LATENT, ROTARY = 512, 64
LANES = 32
CHECKS = [{"b": 2, "h": 3, "t": 33}, {"b": 1, "h": 2, "t": 70}]


@cute.kernel
def decode(q: cute.Tensor, cache: cute.Tensor, out: cute.Tensor, scale: Float32):
    """A warp per sequence and head; lane i has the columns i, i + 32, i + 64, ..."""
    lane = cute.arch.thread_idx()[0]
    b, h, _ = cute.arch.block_idx()
    query = cute.make_rmem_tensor((LATENT + ROTARY) // LANES, Float32)
    row = cute.make_rmem_tensor((LATENT + ROTARY) // LANES, Float32)
    acc = cute.make_rmem_tensor(LATENT // LANES, Float32)
    for i in cutlass.range_constexpr(cute.size(query)):
        query[i] = Float32(q[b, h, i * LANES + lane])
    acc.fill(0.0)
    best, total = Float32(-1e30), Float32(0.0)
    for t in cutlass.range(cache.shape[1]):
        part = Float32(0.0)
        for i in cutlass.range_constexpr(cute.size(row)):
            row[i] = Float32(cache[b, t, i * LANES + lane])
            part += query[i] * row[i]
        score = cute.arch.warp_reduction_sum(part) * scale
        new = cute.arch.fmax(best, score)
        weight = cute.math.exp(score - new)
        shrink = cute.math.exp(best - new)
        total = total * shrink + weight
        for i in cutlass.range_constexpr(cute.size(acc)):
            acc[i] = acc[i] * shrink + weight * row[i]
        best = new
    for i in cutlass.range_constexpr(cute.size(acc)):
        out[b, h, i * LANES + lane] = cutlass.BFloat16(acc[i] / total)


@cute.jit
def run(q: cute.Tensor, cache: cute.Tensor, out: cute.Tensor, scale: Float32):
    """The grid: a block of one warp per sequence and head."""
    grid = (q.shape[0], q.shape[1], 1)
    decode(q, cache, out, scale).launch(grid=grid, block=(LANES, 1, 1))


def inputs(device, b=32, h=128, t=4096):
    """One query token per head, absorbed, and a contiguous cache that all heads share."""
    q = torch.randn(b, h, LATENT + ROTARY, device=device)
    return {
        "q": q.bfloat16(),
        "cache": torch.randn(b, t, LATENT + ROTARY, device=device).bfloat16(),
    }


def reference(q, cache):
    """Attention in fp32: a cache row is the key, its first 512 numbers the value."""
    q, cache = q.float(), cache.float()
    weight = torch.softmax(q @ cache.transpose(1, 2) * (128 + ROTARY) ** -0.5, dim=-1)
    return weight @ cache[..., :LATENT]


def launch(q, cache):
    """The kernel, launched as its users do."""
    out = torch.empty(*q.shape[:2], LATENT, dtype=q.dtype, device=q.device)
    tensors = (from_dlpack(x, assumed_align=16) for x in (q, cache, out))
    run(*tensors, Float32((128 + ROTARY) ** -0.5))
    return out
