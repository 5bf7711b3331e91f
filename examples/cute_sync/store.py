"""Rows doubled, and sent off by TMA from one buffer: two proxies and one buffer used again.

Threads write the buffer, a fence makes their writes visible to the asynchronous proxy, a barrier
gathers them, and one warp starts the store. The next row waits until the store has read.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH = 128


@cute.kernel
def double(store: cute.CopyAtom, out: cute.Tensor, rows: cute.Tensor):
    """One block, a thread per column."""
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    layout = cute.make_layout((1, WIDTH), stride=(0, 1))
    buffer = SmemAllocator().allocate_tensor(cutlass.Float32, layout, 128)
    boxes = cute.local_tile(out, (1, WIDTH), (None, 0))
    shared, parts = cpasync.tma_partition(
        store,
        0,
        cute.make_layout(1),
        cute.group_modes(buffer, 0, 2),
        cute.group_modes(boxes, 0, 2),
    )
    for row in cutlass.range(rows.shape[0], unroll=1):
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # the store before has read
        cute.arch.sync_threads()  # the buffer is free
        buffer[0, thread] = rows[row, thread] * 2.0
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()  # filled
        if warp == 0:
            cute.copy(store, shared, parts[None, row])
            cute.arch.cp_async_bulk_commit_group()
    if warp == 0:
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # before the block ends


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    """Launch on rows [n, 128]."""
    box = cute.make_layout((1, WIDTH), stride=(0, 1))
    operation = cpasync.CopyBulkTensorTileS2GOp()
    store, coordinates = cpasync.make_tiled_tma_atom(operation, out, box, (1, WIDTH))
    double(store, coordinates, rows).launch(grid=(1, 1, 1), block=(WIDTH, 1, 1))


def main() -> None:
    """Double three rows and compare with torch."""
    rows = torch.randn(3, WIDTH).cuda()
    out = torch.zeros_like(rows)
    launch(from_dlpack(rows), from_dlpack(out, assumed_align=16))
    assert torch.equal(out, rows * 2), "the rows are not doubled"


if __name__ == "__main__":
    main()
