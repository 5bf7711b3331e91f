"""Column sums over a ring of two stages: TMA fills, four warps read, mbarriers keep them apart.

A producer warp loads a row into each stage once it is free. A stage is full when its bytes have
arrived, and free again when each of the four consumer warps has said so.
"""

import cutlass
import torch
from cutlass import cute, range_constexpr
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH, STAGES, CONSUMERS = 128, 2, 4
ROW_BYTES = WIDTH * 4


@cute.struct
class Storage:
    """Shared memory: barriers per stage, and the stages."""

    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    free: cute.struct.MemRange[cutlass.Int64, STAGES]
    ring: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, STAGES * WIDTH], 128]


@cute.kernel
def column_sums(load: cute.CopyAtom, rows: cute.Tensor, out: cute.Tensor):
    """One block: four consumer warps, then the producer warp."""
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = SmemAllocator().allocate(Storage)
    full, free = storage.full.data_ptr(), storage.free.data_ptr()
    ring = storage.ring.get_tensor(cute.make_layout((1, WIDTH, STAGES), stride=(0, 1, WIDTH)))
    if thread == 0:
        for stage in range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(free + stage, CONSUMERS)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()  # everyone sees the barriers
    steps = rows.shape[0]
    if warp == CONSUMERS:
        produce(load, rows, ring, full, free, steps)
    else:
        total = cutlass.Float32(0.0)
        for step in cutlass.range(steps, unroll=1):
            stage, round_ = step % STAGES, step // STAGES
            cute.arch.mbarrier_wait(full + stage, round_ & 1)
            total += ring[0, thread, stage]
            cute.arch.sync_warp()
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(free + stage)
        out[thread] = total


@cute.jit
def produce(load, rows, ring, full, free, steps):
    """One warp: a row per step, as stages come free."""
    boxes = cute.local_tile(rows, (1, WIDTH), (None, 0))
    shared, parts = cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(ring, 0, 2), cute.group_modes(boxes, 0, 2)
    )
    for step in cutlass.range(steps, unroll=1):
        stage, round_ = step % STAGES, step // STAGES
        cute.arch.mbarrier_wait(free + stage, round_ & 1 ^ 1)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + stage, ROW_BYTES)
        cute.copy(load, parts[None, step], shared[None, stage], tma_bar_ptr=full + stage)


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    """Launch on rows [n, 128]."""
    box = cute.make_layout((1, WIDTH), stride=(0, 1))
    operation = cpasync.CopyBulkTensorTileG2SOp()
    load, coordinates = cpasync.make_tiled_tma_atom(operation, rows, box, (1, WIDTH))
    column_sums(load, coordinates, out).launch(grid=(1, 1, 1), block=(32 * (CONSUMERS + 1), 1, 1))


def main() -> None:
    """Add up the columns of six rows and compare with torch."""
    rows = torch.randn(6, WIDTH).cuda()
    out = torch.zeros(WIDTH).cuda()
    launch(from_dlpack(rows, assumed_align=16), from_dlpack(out))
    assert torch.allclose(out, rows.sum(0), atol=1e-5), "the sums are wrong"


if __name__ == "__main__":
    main()
