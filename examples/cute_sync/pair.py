"""Two blocks of a cluster swap their rows through each other's shared memory.

Each block says how many bytes it expects, and the other's stores count them. Both must have begun,
with their barrier in place, before the first store; and neither may leave before its row is there.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH = 128
ROW_BYTES = WIDTH * 4


@cute.struct
class Storage:
    """Shared memory: a barrier, and the row that the other block sends."""

    full: cute.struct.MemRange[cutlass.Int64, 1]
    inbox: cute.struct.Align[cute.struct.MemRange[cutlass.Int32, WIDTH], 16]


@cute.kernel
def swap(rows: cute.Tensor, out: cute.Tensor):
    """A cluster of two blocks, a thread per column."""
    thread = cute.arch.thread_idx()[0]
    mine = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    storage = SmemAllocator().allocate(Storage)
    full, inbox = storage.full.data_ptr(), storage.inbox.data_ptr()
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(full, ROW_BYTES)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # the other block runs, and its barrier is there
    cute.arch.store_async_dsmem(inbox + thread, rows[mine, thread], full, mine ^ 1)
    cute.arch.mbarrier_wait(full, 0)
    out[mine, thread] = cute.make_tensor(inbox, cute.make_layout(WIDTH))[thread]


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    """Launch on rows [2, 128]."""
    swap(rows, out).launch(grid=(2, 1, 1), block=(WIDTH, 1, 1), cluster=(2, 1, 1))


def main() -> None:
    """Swap two rows and compare with torch."""
    rows = torch.arange(2 * WIDTH, dtype=torch.int32).view(2, WIDTH).cuda()
    out = torch.zeros_like(rows)
    launch(from_dlpack(rows), from_dlpack(out))
    assert torch.equal(out, rows.flip(0)), "the rows are not swapped"


if __name__ == "__main__":
    main()
