"""One warpgroup loads, one computes: a ring of two stages, and registers that change hands."""

import cutlass
import torch
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH, STAGES, WARPS = 128, 2, 4


@cute.kernel
def column_sums(load: cute.CopyAtom, rows: cute.Tensor, out: cute.Tensor):
    """Warpgroup 0 computes, warpgroup 1 loads."""
    warp, allocator = cute.arch.make_warp_uniform(cute.arch.warp_idx()), SmemAllocator()
    layout = cute.make_layout((1, WIDTH, STAGES), stride=(0, 1, WIDTH))
    ring = allocator.allocate_tensor(cutlass.Float32, layout, 128)
    group, users = pipeline.CooperativeGroup, pipeline.PipelineUserType
    pipe = pipeline.PipelineTmaAsync.create(
        barrier_storage=allocator.allocate_array(cutlass.Int64, 2 * STAGES), num_stages=STAGES,
        producer_group=group(pipeline.Agent.Thread), tx_count=WIDTH * 4,
        consumer_group=group(pipeline.Agent.Thread, WARPS),
    )  # fmt: skip
    boxes = cute.local_tile(rows, (1, WIDTH), (None, 0))
    shared, parts = cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(ring, 0, 2), cute.group_modes(boxes, 0, 2)
    )
    if warp >= WARPS:
        cute.arch.setmaxregister_decrease(40)  # The loader gives registers back.
        if warp == WARPS:
            state = pipeline.make_pipeline_state(users.Producer, STAGES)
            for step in cutlass.range(rows.shape[0], unroll=1):
                pipe.producer_acquire(state)  # The stage is free; its bytes are expected.
                full = pipe.producer_get_barrier(state)
                cute.copy(load, parts[None, step], shared[None, state.index], tma_bar_ptr=full)
                state.advance()
            pipe.producer_tail(state)
    else:
        cute.arch.setmaxregister_increase(232)  # Computing warps take what it gave back.
        state, total = pipeline.make_pipeline_state(users.Consumer, STAGES), cutlass.Float32(0.0)
        for _ in cutlass.range(rows.shape[0], unroll=1):
            pipe.consumer_wait(state)  # The bytes have landed.
            total += ring[0, cute.arch.thread_idx()[0], state.index]
            pipe.consumer_release(state)
            state.advance()
        out[cute.arch.thread_idx()[0]] = total


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    """One block of two warpgroups."""
    box, kind = cute.make_layout((1, WIDTH), stride=(0, 1)), cpasync.CopyBulkTensorTileG2SOp()
    load, at = cpasync.make_tiled_tma_atom(kind, rows, box, (1, WIDTH))
    column_sums(load, at, out).launch(grid=(1, 1, 1), block=(256, 1, 1), min_blocks_per_mp=1)


rows, out = torch.randn(6, WIDTH).cuda(), torch.zeros(WIDTH).cuda()
launch(from_dlpack(rows, assumed_align=16), from_dlpack(out))
print("right:", torch.allclose(out, rows.sum(0), atol=1e-5))
