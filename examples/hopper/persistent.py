"""Two blocks for seven tiles: each takes every second one, and its mbarrier changes phase."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH, BLOCKS = 128, 2


@cute.struct
class Storage:
    """Shared memory of a block, for all of its tiles in turn."""

    full: cute.struct.MemRange[cutlass.Int64, 1]
    tile: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, WIDTH], 128]


@cute.kernel
def double(load: cute.CopyAtom, x: cute.Tensor, out: cute.Tensor):
    """A block takes tiles block, block + blocks, ..."""
    thread = cute.arch.thread_idx()[0]
    storage = SmemAllocator().allocate(Storage)
    full = storage.full.data_ptr()
    tile = storage.tile.get_tensor(cute.make_layout((1, WIDTH), stride=(0, 1)))
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    boxes = cute.local_tile(x, (1, WIDTH), (None, 0))
    shared, parts = cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(boxes, 0, 2)
    )
    phase = cutlass.Int32(0)
    for at in cutlass.range(cute.arch.block_idx()[0], x.shape[0], BLOCKS, unroll=1):
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, WIDTH * 4)
            cute.copy(load, parts[None, at], shared, tma_bar_ptr=full)
        cute.arch.mbarrier_wait(full, phase)
        phase ^= 1  # The next tile completes the other phase.
        out[at, thread] = 2.0 * tile[0, thread]
        cute.arch.sync_threads()  # All have read; the tile may be overwritten.


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    """As many blocks as fit, however many tiles there are."""
    box, kind = cute.make_layout((1, WIDTH), stride=(0, 1)), cpasync.CopyBulkTensorTileG2SOp()
    load, at = cpasync.make_tiled_tma_atom(kind, x, box, (1, WIDTH))
    double(load, at, out).launch(grid=(BLOCKS, 1, 1), block=(WIDTH, 1, 1))


x = torch.randn(7, WIDTH).cuda()
out = torch.zeros_like(x)
launch(from_dlpack(x, assumed_align=16), from_dlpack(out))
print("right:", torch.equal(out, 2 * x))
