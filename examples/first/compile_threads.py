"""Four threads ask for compiled kernels; one of them compiles at a time, and each kernel once."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

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


COMPILED, COMPILING = {}, Lock()


def compiled(x, block):
    key = (x.dtype, block)
    if key not in COMPILED:
        with COMPILING:  # one compile at a time, in the whole process
            if key not in COMPILED:  # another thread may have been first
                tensor = from_dlpack(x).mark_layout_dynamic()
                COMPILED[key] = cute.compile(launch, tensor, Float32(1.0), block)
    return COMPILED[key]


x = torch.randn(1000).cuda()
with ThreadPoolExecutor(4) as threads:
    kernels = list(threads.map(lambda i: compiled(x, 64 << i % 2), range(8)))
wanted = x * 3.0
kernels[0](from_dlpack(x).mark_layout_dynamic(), Float32(3.0))
print("right:", torch.equal(x, wanted), "compiled:", len(COMPILED))
