"""Adds two vectors, an element per thread."""

import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    i = cute.arch.block_idx()[0] * 256 + cute.arch.thread_idx()[0]
    if i < cute.size(out):
        out[i] = x[i] + y[i]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    add(x, y, out).launch(grid=(cute.ceil_div(cute.size(out), 256), 1, 1), block=(256, 1, 1))


x, y = torch.randn(1000).cuda(), torch.randn(1000).cuda()
out = torch.empty_like(x)
launch(from_dlpack(x), from_dlpack(y), from_dlpack(out))
print("right:", torch.equal(out, x + y))
