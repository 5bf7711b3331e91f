"""Vector copies by a layout of threads and values, with a predicate; runs without a GPU."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

TILE = (8, 64)


# %% cute.make_copy_atom cute.nvgpu.CopyUniversalOp cute.make_tiled_copy_tv cute.copy
# %% cute.local_tile
# %% cute.make_identity_tensor cute.elem_less cute.make_rmem_tensor_like cute.TiledCopy
@cute.kernel
def move(x: cute.Tensor, out: cute.Tensor, tiled: cute.TiledCopy):
    block = (cute.arch.block_idx()[0], 0)
    mine = tiled.get_slice(cute.arch.thread_idx()[0])
    source = mine.partition_S(cute.local_tile(x, TILE, block))
    target = mine.partition_D(cute.local_tile(out, TILE, block))
    where = cute.make_identity_tensor(x.shape)  # Elements that are their own coordinates.
    at = mine.partition_S(cute.local_tile(where, TILE, block))
    held = cute.make_rmem_tensor_like(source)
    inside = cute.make_rmem_tensor((1, cute.size(at, mode=[1]), 1), cutlass.Boolean)
    for i in cutlass.range_constexpr(cute.size(at, mode=[1])):
        inside[0, i, 0] = cute.elem_less(at[0, i, 0], x.shape)
    held.fill(0.0)
    cute.copy(tiled, source, held, pred=inside)
    held.store(held.load() * 2.0)
    cute.copy(tiled, held, target, pred=inside)


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), x.element_type, num_bits_per_copy=128)
    threads = cute.make_ordered_layout((4, 16), order=(1, 0))  # 16 threads along a row,
    values = cute.make_layout((1, 4))  # each with four floats, 128 bits.
    tiled = cute.make_tiled_copy_tv(atom, threads, values)
    blocks = cute.ceil_div(x.shape[0], TILE[0])
    move(x, out, tiled).launch(grid=(blocks, 1, 1), block=(64, 1, 1))


x = torch.randn(13, 64).cuda()  # The last tile has 5 rows of 8.
out = torch.zeros_like(x)
launch(from_dlpack(x, assumed_align=16), from_dlpack(out, assumed_align=16))
assert torch.equal(out, 2 * x)
