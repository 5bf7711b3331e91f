"""TMA's gather4: 64 rows of a cache by their numbers, four per instruction (sm_100)."""

import tempfile

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_compact_tensor
from cutlass.utils import SmemAllocator

ROWS, WIDTH = 64, 64
SHAPE = (ROWS, WIDTH)


@cute.kernel
def gather(atom: cute.CopyAtom, cache: cute.Tensor, chosen: cute.Tensor):
    allocator = SmemAllocator()
    tile = cute.make_ordered_layout(SHAPE, order=(1, 0))
    s_tile = allocator.allocate_tensor(cutlass.BFloat16, tile, 1024)
    full = allocator.allocate_array(cutlass.Int64)
    with cute.arch.elect_one():
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(full, ROWS * WIDTH * 2)
    cute.arch.sync_warp()
    boxes = [cute.group_modes(cute.local_tile(x, SHAPE, (None, 0)), 0, 2) for x in (cache, chosen)]
    to, rows, numbers = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(s_tile, 0, 2), boxes
    )
    cute.copy(atom, [rows[None, 0], numbers[None, 0]], to, tma_bar_ptr=full)
    cute.arch.mbarrier_wait(full, 0)


@cute.jit
def launch(cache: cute.Tensor, numbers: cute.Tensor):
    chosen = cute.make_tensor(numbers.iterator, cute.make_layout(SHAPE, stride=(1, 0)))
    tile = cute.make_ordered_layout(SHAPE, order=(1, 0))
    load = cpasync.CopyBulkTensor2DGather4G2SOp()
    atom, rows = cpasync.make_tiled_tma_atom(load, cache, tile, SHAPE, gmem_coord_tensor=chosen)
    gather(atom, rows, chosen).launch(grid=(1, 1, 1), block=(32, 1, 1))


cache = make_fake_compact_tensor(
    cutlass.BFloat16, (1024, WIDTH), stride_order=(1, 0), assumed_align=16
)
numbers = make_fake_compact_tensor(cutlass.Int32, (ROWS,), assumed_align=16)
with tempfile.TemporaryDirectory() as folder:  # No chip before sm_100 has it.
    options = f"--gpu-arch sm_100a --keep-ptx --dump-dir={folder}"
    compiled = cute.compile(launch, cache, numbers, options=options)
    assert compiled.__ptx__.count("tile::gather4") == ROWS // 4
