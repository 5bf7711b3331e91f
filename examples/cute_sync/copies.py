"""Rows shifted by one element, loaded ahead by ``cp.async`` into two buffers.

Each thread copies 16 bytes of the next row while all work on this one. ``cp_async_wait_group``
waits for the own copies, the barrier after it for those of the others.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

THREADS, CHUNK = 64, 4
WIDTH = THREADS * CHUNK


@cute.jit
def fetch(rows, buffers, row, thread):
    """Start the copy of a thread's chunk of a row into the row's buffer."""
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=CHUNK * 32)
    source = cute.local_tile(rows[row, None], (CHUNK,), (thread,))
    target = cute.local_tile(buffers[row % 2, None], (CHUNK,), (thread,))
    cute.copy(atom, source, target)


@cute.kernel
def shift(rows: cute.Tensor, out: cute.Tensor):
    """One block; a thread copies a chunk and writes a chunk, begun one element to the right."""
    thread = cute.arch.thread_idx()[0]
    layout = cute.make_layout((2, WIDTH), stride=(WIDTH, 1))
    buffers = SmemAllocator().allocate_tensor(cutlass.Float32, layout, 128)
    steps = rows.shape[0]
    fetch(rows, buffers, 0, thread)
    cute.arch.cp_async_commit_group()
    for row in cutlass.range(steps, unroll=1):
        if row + 1 < steps:
            fetch(rows, buffers, row + 1, thread)
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(1)  # this row's copies of this thread
        cute.arch.sync_threads()  # and those of the others
        for i in cutlass.range_constexpr(CHUNK):
            column = thread * CHUNK + i
            out[row, column] = buffers[row % 2, (column + 1) % WIDTH]
        cute.arch.sync_threads()  # the buffer is free


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    """Launch on rows [n, 256]."""
    shift(rows, out).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


def main() -> None:
    """Shift four rows and compare with torch."""
    rows = torch.randn(4, WIDTH).cuda()
    out = torch.zeros_like(rows)
    launch(from_dlpack(rows, assumed_align=16), from_dlpack(out))
    assert torch.equal(out, rows.roll(-1, 1)), "the rows are not shifted"


if __name__ == "__main__":
    main()
