"""Sums over a matrix by four blocks, put together by the last of them, and read by a second grid.

Each block leaves its part in global memory and takes a ticket. Who holds the last ticket knows that
all parts are there, and adds them. The second grid may begin before the first has ended, and waits
for it.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH, BLOCKS, ROWS = 64, 4, 3


@cute.kernel
def column_sums(rows: cute.Tensor, parts: cute.Tensor, tickets: cute.Tensor, sums: cute.Tensor):
    """Four blocks, a thread per column."""
    thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    ticket = SmemAllocator().allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
    cute.arch.griddepcontrol_launch_dependents()
    total = cutlass.Float32(0.0)
    for row in cutlass.range(ROWS, unroll=1):
        total += rows[block * ROWS + row, thread]
    parts[block, thread] = total
    cute.arch.sync_threads()  # the part is written
    if thread == 0:
        ticket[0] = cute.arch.atomic_add(tickets.iterator, 1, sem="acq_rel", scope="gpu")
    cute.arch.sync_threads()  # the ticket is there
    if ticket[0] == BLOCKS - 1:
        total = cutlass.Float32(0.0)
        for other in cutlass.range(BLOCKS, unroll=1):
            total += parts[other, thread]
        sums[thread] = total


@cute.kernel
def double(sums: cute.Tensor, out: cute.Tensor):
    """One block, a thread per column."""
    thread = cute.arch.thread_idx()[0]
    cute.arch.griddepcontrol_wait()  # the first grid has ended
    out[thread] = sums[thread] * 2


@cute.jit
def launch(
    rows: cute.Tensor, parts: cute.Tensor, tickets: cute.Tensor, sums: cute.Tensor, out: cute.Tensor
):
    """Launch both grids on rows [12, 64]."""
    column_sums(rows, parts, tickets, sums).launch(grid=(BLOCKS, 1, 1), block=(WIDTH, 1, 1))
    double(sums, out).launch(grid=(1, 1, 1), block=(WIDTH, 1, 1), use_pdl=True)


def main() -> None:
    """Add up twelve rows and compare with torch."""
    rows = torch.randint(-9, 9, (BLOCKS * ROWS, WIDTH)).float().cuda()
    parts = torch.zeros(BLOCKS, WIDTH).cuda()
    tickets = torch.zeros(1, dtype=torch.int32).cuda()
    sums, out = torch.zeros(WIDTH).cuda(), torch.zeros(WIDTH).cuda()
    launch(*map(from_dlpack, (rows, parts, tickets, sums, out)))
    assert torch.equal(out, rows.sum(0) * 2), "the sums are wrong"


if __name__ == "__main__":
    main()
