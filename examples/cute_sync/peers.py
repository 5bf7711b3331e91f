"""Two blocks of a cluster read each other's rows where these lie: in the other's shared memory.

A block's memory can be read from when its row is written until it ends. So both meet before they
read, and again before either may end. Each row is read twice, and changed in between.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH = 128


def taken(pointer, rank):
    """The number at ``pointer``'s place in the shared memory of block ``rank`` of the cluster."""
    return cute.arch.inline_ptx(
        "{ .reg .b32 at; mapa.shared::cluster.u32 at, {$r0}, {$r1}; "
        "ld.shared::cluster.f32 {$w0}, [at]; }",
        write_only_types=[cutlass.Float32],
        read_only_args=[cutlass.Int32(pointer.toint()), rank],
    )


@cute.kernel
def exchange(rows: cute.Tensor, out: cute.Tensor):
    """A cluster of two blocks, a thread per column."""
    thread = cute.arch.thread_idx()[0]
    mine = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    own = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(WIDTH), 16)
    own[thread] = rows[mine, thread]
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # both rows are written
    first = taken(own.iterator + (WIDTH - 1 - thread), mine ^ 1)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # both rows are read
    own[thread] = first * 2
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # both are written again
    out[mine, thread] = taken(own.iterator + thread, mine ^ 1)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # nobody reads any more


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    """Launch on rows [2, 128]."""
    exchange(rows, out).launch(grid=(2, 1, 1), block=(WIDTH, 1, 1), cluster=(2, 1, 1))


def main() -> None:
    """Turn two rows around, doubled, and compare with torch."""
    rows = torch.randn(2, WIDTH).cuda()
    out = torch.zeros_like(rows)
    launch(from_dlpack(rows), from_dlpack(out))
    assert torch.equal(out, rows.flip(1) * 2), "the rows are not turned around"


if __name__ == "__main__":
    main()
