"""Compiles a kernel that is called with torch's tensors as they are, of any length."""

import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

BLOCK = 128


@cute.kernel
def double(x: cute.Tensor, out: cute.Tensor):
    i = cute.arch.block_idx()[0] * BLOCK + cute.arch.thread_idx()[0]
    if i < cute.size(x):
        out[i] = 2 * x[i]


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    grid = (cute.ceil_div(cute.size(x), BLOCK), 1, 1)
    double(x, out).launch(grid=grid, block=(BLOCK, 1, 1))


x = torch.randn(1000).cuda()
out = torch.empty_like(x)
wrapped = [from_dlpack(t, enable_tvm_ffi=True).mark_layout_dynamic() for t in (x, out)]
fn = cute.compile(launch, *wrapped, options="--enable-tvm-ffi")
fn(x, out)  # torch's tensors, no from_dlpack per call
assert torch.equal(out, 2 * x)
fn(x[:300], out[:300])  # another length: dynamic
try:
    fn(x.double(), out)
except ValueError as error:
    print(error)  # Mismatched Tensor on argument #0 ..., expected dtype=float32
