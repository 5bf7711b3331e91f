"""Compiles a kernel once and calls it for tensors of any length."""

import cutlass
import torch
from cutlass import Float32, cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def scale(x: cute.Tensor, factor: Float32, BLOCK: cutlass.Constexpr):
    i = cute.arch.block_idx()[0] * BLOCK + cute.arch.thread_idx()[0]
    if i < cute.size(x):
        x[i] = x[i] * factor


@cute.jit
def launch(x: cute.Tensor, factor: Float32, BLOCK: cutlass.Constexpr):
    grid = (cute.ceil_div(cute.size(x), BLOCK), 1, 1)
    scale(x, factor, BLOCK).launch(grid=grid, block=(BLOCK, 1, 1))


COMPILED = {}


def scaled(x, factor, block=128):
    tensor = from_dlpack(x).mark_layout_dynamic()  # lengths are values, not constants
    key = (x.dtype, block)
    if key not in COMPILED:
        COMPILED[key] = cute.compile(launch, tensor, Float32(factor), block)
    fn = COMPILED[key]
    fn(tensor, Float32(factor))  # a Constexpr is part of the kernel: not passed again
    return x


for n, factor in ((1000, 2.0), (300, 3.0), (1000, 0.5)):
    x = torch.randn(n).cuda()
    wanted = x * factor
    assert torch.equal(scaled(x, factor), wanted)
print("compiled:", len(COMPILED))
