"""A transpose through shared memory: rows are written, columns read; banks collide or not."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

SIZE = 32
#: Five bits of the row, XORed into the column: each row starts at another bank.
SWIZZLE = (5, 0, 5)


@cute.kernel
def transpose(x: cute.Tensor, out: cute.Tensor):
    """One warp: lane i writes column i of each row, then reads row i of each column."""
    lane = cute.arch.lane_idx()
    rows = cute.make_layout((SIZE, SIZE), stride=(SIZE, 1))
    mixed = cute.make_composed_layout(cute.make_swizzle(*SWIZZLE), 0, rows)
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, mixed, 128)
    for row in cutlass.range_constexpr(SIZE):
        tile[row, lane] = x[row, lane]  # 32 neighbors: 32 banks.
    cute.arch.sync_warp()
    for column in cutlass.range_constexpr(SIZE):
        out[column, lane] = tile[lane, column]  # 32 rows: one bank, unless they are swizzled.


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    """One block of one warp."""
    transpose(x, out).launch(grid=(1, 1, 1), block=(32, 1, 1))


x = torch.randn(SIZE, SIZE).cuda()
out = torch.zeros_like(x)
launch(from_dlpack(x), from_dlpack(out))
print("right:", torch.equal(out, x.T))
