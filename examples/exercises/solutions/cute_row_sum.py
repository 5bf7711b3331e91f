"""Exercise: the sum of each row of 32 in the CuTe DSL, a warp per row, by shuffles."""

import torch
from cutlass import cute, range_constexpr
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def row_sum(x: cute.Tensor, out: cute.Tensor):
    row, lane = cute.arch.block_idx()[0], cute.arch.lane_idx()
    value = x[row, lane]
    for step in range_constexpr(5):
        value += cute.arch.shuffle_sync_bfly(value, offset=1 << step)
    if lane == 0:
        out[row] = value


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    row_sum(x, out).launch(grid=(12, 1, 1), block=(32, 1, 1))


x = torch.randn(12, 32).cuda()
out = torch.zeros(12).cuda()
launch(from_dlpack(x), from_dlpack(out))
print("right:", torch.allclose(out, x.sum(1), atol=1e-4))
