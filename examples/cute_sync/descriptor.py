"""A TMA descriptor changed inside of the kernel: one atom, two matrices of unlike height; no GPU.

Pages of one pool need none of this: one descriptor, and the page number as a coordinate.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.tensor_utils import TensorMapUpdateMode
from cutlass.utils import SmemAllocator, TensorMapManager

ROWS, COLUMNS, MAP_BYTES = 8, 64, 128


@cute.struct
class Storage:
    """Shared memory of the block."""

    full: cute.struct.MemRange[cutlass.Int64, 1]
    tile: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, ROWS * COLUMNS], 128]


@cute.kernel
def take(
    load: cute.CopyAtom, at: cute.Tensor, other: cute.Tensor, maps: cute.Tensor,
    out: cute.Tensor, layout: cute.Layout,
):  # fmt: skip
    """Load the first rows of ``other`` by the atom that was made for another matrix."""
    thread = cute.arch.thread_idx()[0]
    storage = SmemAllocator().allocate(Storage)
    full, tile = storage.full.data_ptr(), storage.tile.get_tensor(layout)
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    shared, parts = cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2),
        cute.group_modes(cute.local_tile(at, (ROWS, COLUMNS), (None, 0)), 0, 2),
    )  # fmt: skip
    manager = TensorMapManager(TensorMapUpdateMode.GMEM, MAP_BYTES)
    place = manager.get_tensormap_ptr(maps[None, 0].iterator)
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
        with cute.arch.elect_one():
            cpasync.copy_tensormap(load, place)  # The map of the atom, where it can be changed.
        cute.arch.sync_warp()
        cute.arch.fence_acq_rel_cta()
        cpasync.update_tma_descriptor(load, other, place)  # Base, extents and strides of other.
        cute.arch.sync_warp()
        cpasync.fence_tma_desc_release()  # Who wrote it ...
        cpasync.fence_tma_desc_acquire(place)  # ... and who loads by it, each before its load.
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, ROWS * COLUMNS * 4)
        changed = manager.get_tensormap_ptr(place, cute.AddressSpace.generic)
        cute.copy(load, parts[None, 0], shared, tma_bar_ptr=full, tma_desc_ptr=changed)
    cute.arch.mbarrier_wait(full, 0)
    for row in cutlass.range_constexpr(ROWS):
        out[row, thread] = tile[row, thread]


@cute.jit
def launch(x: cute.Tensor, other: cute.Tensor, maps: cute.Tensor, out: cute.Tensor):
    """The atom is made for ``x``; ``maps`` is memory for the changed descriptor."""
    layout = cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1))
    kind = cpasync.CopyBulkTensorTileG2SOp()
    load, at = cpasync.make_tiled_tma_atom(kind, x, layout, (ROWS, COLUMNS))
    take(load, at, other, maps, out, layout).launch(grid=(1, 1, 1), block=(COLUMNS, 1, 1))


x, other = torch.randn(16, COLUMNS).cuda(), torch.randn(5, COLUMNS).cuda()
maps = torch.zeros(1, MAP_BYTES // 8, dtype=torch.int64).cuda()
out = torch.full((ROWS, COLUMNS), 9.0).cuda()
arguments = [from_dlpack(t, assumed_align=16) for t in (x, other)]
launch(*arguments, from_dlpack(maps, assumed_align=MAP_BYTES), from_dlpack(out))
print("right:", torch.equal(out[:5], other) and not out[5:].any())  # Past the end: zeros.
