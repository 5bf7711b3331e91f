"""Sums of rows named by an index list: cp.async fills a ring, and tells the barriers itself.

A producer warp copies 16 bytes per lane, from any address; TMA loads boxes. Each lane then lets its
copies arrive at the stage's barrier once they have landed, and goes on.
"""

import cutlass
import torch
from cutlass import cute, range_constexpr
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH, STAGES, CONSUMERS = 128, 2, 4


@cute.struct
class Storage:
    """Shared memory: barriers per stage, and the stages."""

    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    free: cute.struct.MemRange[cutlass.Int64, STAGES]
    ring: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, STAGES * WIDTH], 128]


@cute.kernel
def listed_sums(rows: cute.Tensor, index: cute.Tensor, out: cute.Tensor):
    """One block: four consumer warps, then the producer warp."""
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = SmemAllocator().allocate(Storage)
    full, free = storage.full.data_ptr(), storage.free.data_ptr()
    ring = storage.ring.get_tensor(cute.make_layout((STAGES, WIDTH), stride=(WIDTH, 1)))
    if thread == 0:
        for stage in range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 32)  # each lane of the producer arrives
            cute.arch.mbarrier_init(free + stage, CONSUMERS)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    steps = index.shape[0]
    if warp == CONSUMERS:
        produce(rows, index, ring, full, free, steps)
    else:
        total = cutlass.Float32(0.0)
        for step in cutlass.range(steps, unroll=1):
            stage, round_ = step % STAGES, step // STAGES
            cute.arch.mbarrier_wait(full + stage, round_ & 1)
            total += ring[stage, thread]
            cute.arch.sync_warp()
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(free + stage)
        out[thread] = total


@cute.jit
def produce(rows, index, ring, full, free, steps):
    """One warp: four values per lane, from the row that the list names."""
    copy = cute.make_copy_atom(cpasync.CopyG2SOp(), rows.element_type, num_bits_per_copy=128)
    lane = cute.arch.lane_idx()
    for step in cutlass.range(steps, unroll=1):
        stage, round_ = step % STAGES, step // STAGES
        cute.arch.mbarrier_wait(free + stage, round_ & 1 ^ 1)
        source = cute.local_tile(rows[index[step], None], (4,), (lane,))
        cute.copy(copy, source, cute.local_tile(ring[stage, None], (4,), (lane,)))
        cute.arch.cp_async_mbarrier_arrive_noinc(full + stage)  # by every lane, after its copies


@cute.jit
def launch(rows: cute.Tensor, index: cute.Tensor, out: cute.Tensor):
    """Launch on rows [n, 128]."""
    listed_sums(rows, index, out).launch(grid=(1, 1, 1), block=(32 * (CONSUMERS + 1), 1, 1))


def main() -> None:
    """Add up rows in any order and compare with torch."""
    rows = torch.randn(9, WIDTH).cuda()
    index = torch.tensor([7, 0, 3, 3, 8, 1], dtype=torch.int32).cuda()
    out = torch.zeros(WIDTH).cuda()
    launch(from_dlpack(rows, assumed_align=16), from_dlpack(index), from_dlpack(out))
    assert torch.allclose(out, rows[index.long()].sum(0), atol=1e-5), "the sums are wrong"


if __name__ == "__main__":
    main()
