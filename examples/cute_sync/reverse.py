"""Rows turned around through one buffer in shared memory: what ``sync_threads`` is for.

Threads fill the buffer, read each other's elements, and fill it again. Two barriers per row keep
the fill before the reads, and the reads before the next fill.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH = 128


@cute.kernel
def reverse(rows: cute.Tensor, out: cute.Tensor):
    """One block, a thread per column."""
    thread = cute.arch.thread_idx()[0]
    buffer = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(WIDTH), 16)
    for row in cutlass.range(rows.shape[0], unroll=1):
        buffer[thread] = rows[row, thread]
        cute.arch.sync_threads()  # filled
        out[row, thread] = buffer[WIDTH - 1 - thread]
        cute.arch.sync_threads()  # read


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    """Launch on rows [n, 128]."""
    reverse(rows, out).launch(grid=(1, 1, 1), block=(WIDTH, 1, 1))


def main() -> None:
    """Turn three rows around and compare with torch."""
    rows = torch.randn(3, WIDTH).cuda()
    out = torch.zeros_like(rows)
    launch(from_dlpack(rows), from_dlpack(out))
    assert torch.equal(out, rows.flip(1)), "the rows are not turned around"


if __name__ == "__main__":
    main()
