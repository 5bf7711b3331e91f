"""64 x 576 tiles of MLA's cache by TMA, one page each: one descriptor, a barrier, a page table.

One warp asks for a tile by one ``cute.copy``, which becomes nine boxes of 64 columns, the width of
the swizzle. The page is a coordinate, read from the table.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

KEYS, WIDTH, THREADS = 64, 576, 64
TILE_BYTES = KEYS * WIDTH * 2


def tile_layout():
    """A tile as wgmma reads it: K-major, swizzled over 128 bytes."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, cutlass.BFloat16)
    return cute.tile_to_shape(atom, (KEYS, WIDTH), order=(0, 1))


@cute.kernel
def key_sums(load: cute.CopyAtom, at: cute.Tensor, table: cute.Tensor, out: cute.Tensor):
    """Sum of each key's values, tile after tile of one sequence; a thread per key."""
    thread, memory, layout = cute.arch.thread_idx()[0], SmemAllocator(), tile_layout()
    full = memory.allocate_array(cutlass.Int64, 1)
    tile = memory.allocate_tensor(cutlass.BFloat16, layout.outer, 1024, swizzle=layout.inner)
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    pages = cute.local_tile(at, (KEYS, WIDTH), (0, 0, None))  # (64, 576, pages)
    shared, parts = cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(pages, 0, 2)
    )
    for step in cutlass.range(table.shape[0], unroll=1):
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, TILE_BYTES)
            cute.copy(load, parts[None, table[step]], shared, tma_bar_ptr=full)
        cute.arch.mbarrier_wait(full, step & 1)
        total = cutlass.Float32(0.0)
        for column in cutlass.range(WIDTH, unroll=8):
            total += tile[thread, column].to(cutlass.Float32)
        out[step * KEYS + thread] = total
        cute.arch.sync_threads()  # All have read the tile: the next copy may replace it.


@cute.jit
def launch(cache: cute.Tensor, table: cute.Tensor, out: cute.Tensor):
    """The descriptor of the whole cache [pages, 64, 576], made once on the host."""
    rows = cute.make_tensor(cache.iterator, cute.select(cache.layout, mode=[1, 2, 0]))
    load, at = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(), rows, tile_layout(), (KEYS, WIDTH)
    )
    key_sums(load, at, table, out).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


cache = torch.randn(8, KEYS, WIDTH, dtype=torch.bfloat16).cuda()
table = torch.tensor([6, 1, 4], dtype=torch.int32).cuda()
out = torch.zeros(len(table) * KEYS).cuda()
launch(from_dlpack(cache, assumed_align=16), from_dlpack(table), from_dlpack(out))
expected = cache[table.long()].float().sum(-1).flatten()
print("right:", torch.allclose(out, expected, atol=1e-3))
