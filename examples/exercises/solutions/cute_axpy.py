"""Exercise: out = a * x + y in the CuTe DSL, an element per thread, the last block not full."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def axpy(a: cutlass.Float32, x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    i = cute.arch.block_idx()[0] * 256 + cute.arch.thread_idx()[0]
    if i < cute.size(out):
        out[i] = a * x[i] + y[i]


@cute.jit
def launch(a: cutlass.Float32, x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    axpy(a, x, y, out).launch(grid=(4, 1, 1), block=(256, 1, 1))


x, y = torch.randn(1000).cuda(), torch.randn(1000).cuda()
out = torch.zeros_like(x)
launch(cutlass.Float32(2.0), from_dlpack(x), from_dlpack(y), from_dlpack(out))
print("right:", torch.allclose(out, 2.0 * x + y, atol=1e-6))
