"""Sums of rows by shuffles in one warpgroup, written out by another: two named barriers.

The four warps of the first warpgroup add up four rows at a time and leave the sums in shared
memory. They arrive at one barrier when the sums are there, and wait at another until these are
taken. Registers move from the one warpgroup to the other.
"""

import cutlass
import torch
from cutlass import cute, range_constexpr
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH, WARPS, THREADS = 32, 4, 256
FILLED, TAKEN = 1, 2


@cute.kernel
def row_sums(rows: cute.Tensor, out: cute.Tensor):
    """One block of two warpgroups."""
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    lane = cute.arch.lane_idx()
    sums = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(WARPS), 16)
    rounds = rows.shape[0] // WARPS
    if warp < WARPS:
        cute.arch.setmaxregister_decrease(24)
        for step in cutlass.range(rounds, unroll=1):
            value = rows[step * WARPS + warp, lane]
            for distance in range_constexpr(5):
                value += cute.arch.shuffle_sync_bfly(value, offset=1 << distance)
            if lane == 0:
                sums[warp] = value
            cute.arch.barrier_arrive(barrier_id=FILLED, number_of_threads=THREADS)
            cute.arch.barrier(barrier_id=TAKEN, number_of_threads=THREADS)
    else:
        cute.arch.setmaxregister_increase(240)
        for step in cutlass.range(rounds, unroll=1):
            cute.arch.barrier(barrier_id=FILLED, number_of_threads=THREADS)
            if thread - 128 < WARPS:
                out[step * WARPS + thread - 128] = sums[thread - 128]
            cute.arch.barrier_arrive(barrier_id=TAKEN, number_of_threads=THREADS)


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    """Launch on rows [n, 32]."""
    row_sums(rows, out).launch(grid=(1, 1, 1), block=(THREADS, 1, 1), min_blocks_per_mp=1)


def main() -> None:
    """Add up twelve rows and compare with torch."""
    rows = torch.randint(-9, 9, (12, WIDTH)).float().cuda()
    out = torch.zeros(12).cuda()
    launch(from_dlpack(rows), from_dlpack(out))
    assert torch.equal(out, rows.sum(1)), "the sums are wrong"


if __name__ == "__main__":
    main()
