"""Two blocks of a cluster need the same tile: one TMA load brings it to both."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH = 128


@cute.struct
class Storage:
    """Shared memory of each block, at the same offsets in both."""

    full: cute.struct.MemRange[cutlass.Int64, 1]
    tile: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, WIDTH], 128]


@cute.kernel
def scaled(load: cute.CopyAtom, x: cute.Tensor, out: cute.Tensor):
    """Block 0 loads for both; each scales by its own number."""
    thread, rank = cute.arch.thread_idx()[0], cute.arch.block_idx_in_cluster()
    storage = SmemAllocator().allocate(Storage)
    full = storage.full.data_ptr()
    tile = storage.tile.get_tensor(cute.make_layout((1, WIDTH), stride=(0, 1)))
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(full, WIDTH * 4)  # Each waits for its own bytes.
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # Both barriers are there before the copy signals them.
    boxes = cute.local_tile(x, (1, WIDTH), (0, 0))
    shared, part = cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(boxes, 0, 2)
    )
    if rank == 0 and cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
        cute.copy(load, part, shared, tma_bar_ptr=full, mcast_mask=cutlass.Int16(0b11))
    cute.arch.mbarrier_wait(full, 0)
    out[rank, thread] = tile[0, thread] * cutlass.Float32(rank + 1)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # No block ends while the other still signals it.


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    """One cluster of two blocks."""
    box = cute.make_layout((1, WIDTH), stride=(0, 1))
    kind = cpasync.CopyBulkTensorTileG2SMulticastOp()
    load, at = cpasync.make_tiled_tma_atom(kind, x, box, (1, WIDTH), num_multicast=1)
    scaled(load, at, out).launch(grid=(2, 1, 1), block=(WIDTH, 1, 1), cluster=(2, 1, 1))


x, out = torch.randn(1, WIDTH).cuda(), torch.zeros(2, WIDTH).cuda()
launch(from_dlpack(x, assumed_align=16), from_dlpack(out))
print("right:", torch.equal(out, torch.cat([x, 2 * x])))
