"""One box by TMA: a thread starts the copy, an mbarrier counts its bytes, all threads wait."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

ROWS, COLUMNS = 8, 64


@cute.struct
class Storage:
    """Shared memory of the block."""

    full: cute.struct.MemRange[cutlass.Int64, 1]
    tile: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, ROWS * COLUMNS], 128]


@cute.kernel
def double(load: cute.CopyAtom, x: cute.Tensor, out: cute.Tensor, layout: cute.Layout):
    """A tile per block, a thread per column."""
    thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    storage = SmemAllocator().allocate(Storage)
    full, tile = storage.full.data_ptr(), storage.tile.get_tensor(layout)
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)  # One arrival completes a phase.
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    boxes = cute.local_tile(x, (ROWS, COLUMNS), (None, 0))
    shared, parts = cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(boxes, 0, 2)
    )
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, ROWS * COLUMNS * 4)
        cute.copy(load, parts[None, block], shared, tma_bar_ptr=full)
    cute.arch.mbarrier_wait(full, 0)  # Arrived, and all bytes have landed.
    for row in cutlass.range_constexpr(ROWS):
        if block * ROWS + row < out.shape[0]:
            out[block * ROWS + row, thread] = 2.0 * tile[row, thread]


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    """The descriptor is made on the host; the kernel gets an atom and coordinates."""
    layout = cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1))
    kind = cpasync.CopyBulkTensorTileG2SOp()
    load, at = cpasync.make_tiled_tma_atom(kind, x, layout, (ROWS, COLUMNS))
    grid = (cute.ceil_div(x.shape[0], ROWS), 1, 1)
    double(load, at, out, layout).launch(grid=grid, block=(COLUMNS, 1, 1))


x = torch.randn(13, COLUMNS).cuda()  # The second box reaches over the end: TMA fills zeros.
out = torch.zeros_like(x)
launch(from_dlpack(x, assumed_align=16), from_dlpack(out))
print("right:", torch.equal(out, 2 * x))
