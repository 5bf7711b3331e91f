"""Kernels, tensors, shared memory and numbers of the CuTe DSL; runs without a GPU."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

THREADS = 64


# %% cute.kernel cute.jit cutlass.range cutlass.range_constexpr cutlass.const_expr
# %% cutlass.Constexpr cute.printf cute.arch.thread_idx cute.arch.block_idx
@cute.kernel
def scale(x: cute.Tensor, out: cute.Tensor, factor: cutlass.Float32, loud: cutlass.Constexpr[bool]):
    thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    if cutlass.const_expr(loud):  # Of compile time: else the print is not in the kernel.
        value = x[block, thread]
        if thread == 0 and block == 0:  # One line in all; else one per thread of each block.
            cute.printf("block {} thread {}: {}", block, thread, value)
    for step in cutlass.range(2, unroll=1):  # Of run time.
        for part in cutlass.range_constexpr(2):  # Unrolled while tracing.
            column = (step * 2 + part) * THREADS + thread
            out[block, column] = x[block, column] * factor


@cute.jit
def launch_scale(x: cute.Tensor, out: cute.Tensor, factor: cutlass.Float32):
    scale(x, out, factor, True).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


x = torch.randn(2, 4 * THREADS).cuda()
out = torch.empty_like(x)
launch_scale(from_dlpack(x), from_dlpack(out), 3.0)
assert torch.equal(out, 3 * x)


# %% cute.struct utils.SmemAllocator cute.make_tensor cute.recast_ptr cute.make_rmem_tensor
# %% cute.make_rmem_tensor_like cute.where cute.zeros_like cutlass.Uint32 cutlass.Int32
# %% cute.math.exp2 cute.math.rsqrt cute.ReductionOp cutlass.BFloat16
@cute.struct
class Storage:
    """Shared memory of a block."""

    row: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, 4 * THREADS], 128]


@cute.kernel
def soften(x: cute.Tensor, out: cute.Tensor):
    thread = cute.arch.thread_idx()[0]
    storage = SmemAllocator().allocate(Storage)
    row = storage.row.get_tensor(cute.make_layout((4, THREADS)))  # A column of 4 per thread.
    again = cute.make_tensor(row.iterator, cute.make_layout(4 * THREADS))  # The same bytes.
    for i in cutlass.range_constexpr(4):
        again[thread * 4 + i] = x[thread * 4 + i]
    cute.arch.sync_threads()
    mine = cute.make_rmem_tensor(4, cutlass.Float32)
    mine.store(row[None, thread].load())
    values = mine.load()  # Values to compute with, four at a time.
    values = cute.where(values < 0.0, cute.zeros_like(values), values)
    total = values.reduce(cute.ReductionOp.ADD, 0.0, reduction_profile=0)
    values = cute.math.exp2(values) * cute.math.rsqrt(total + 1.0)
    rounded = cute.make_rmem_tensor_like(mine, cutlass.BFloat16)
    rounded.store(values.to(cutlass.BFloat16))
    bits = cute.recast_ptr(rounded.iterator, dtype=cutlass.Uint32)  # Two values in a word.
    words = cute.make_tensor(bits, cute.make_layout(2))
    for i in cutlass.range_constexpr(2):
        out[thread, i] = cutlass.Int32(words[i])


@cute.jit
def launch_soften(x: cute.Tensor, out: cute.Tensor):
    soften(x, out).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


x = torch.randn(4 * THREADS).cuda()
out = torch.empty(THREADS, 2, dtype=torch.int32).cuda()
launch_soften(from_dlpack(x), from_dlpack(out))
clipped = x.clamp(min=0).view(THREADS, 4)
expected = clipped.exp2() * (clipped.sum(1, keepdim=True) + 1).rsqrt()
assert torch.allclose(out.view(torch.bfloat16).float(), expected, rtol=1e-2)
