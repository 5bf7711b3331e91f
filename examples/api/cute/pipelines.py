"""A ring between a TMA producer and consumer warps, by the pipeline classes; without a GPU."""

import cutlass
import torch
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

WIDTH, STAGES, CONSUMERS = 128, 2, 4


# %% pipeline.PipelineTmaAsync pipeline.CooperativeGroup pipeline.Agent
# %% pipeline.make_pipeline_state pipeline.PipelineUserType pipeline.NamedBarrier cute.struct
@cute.struct
class Storage:
    """Shared memory: two barriers per stage, and the stages."""

    barriers: cute.struct.MemRange[cutlass.Int64, 2 * STAGES]
    ring: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, STAGES * WIDTH], 128]


@cute.kernel
def column_sums(load: cute.CopyAtom, rows: cute.Tensor, out: cute.Tensor):
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = SmemAllocator().allocate(Storage)
    ring = storage.ring.get_tensor(cute.make_layout((1, WIDTH, STAGES), stride=(0, 1, WIDTH)))
    pipe = pipeline.PipelineTmaAsync.create(
        barrier_storage=storage.barriers.data_ptr(),
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, CONSUMERS),
        tx_count=WIDTH * 4,  # The bytes of a stage.
    )
    steps = rows.shape[0]
    if warp == CONSUMERS:
        boxes = cute.local_tile(rows, (1, WIDTH), (None, 0))
        shared, parts = cpasync.tma_partition(
            load,
            0,
            cute.make_layout(1),
            cute.group_modes(ring, 0, 2),
            cute.group_modes(boxes, 0, 2),
        )
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for step in cutlass.range(steps, unroll=1):
            pipe.producer_acquire(state)  # The stage is free, and its bytes are expected.
            barrier = pipe.producer_get_barrier(state)
            cute.copy(load, parts[None, step], shared[None, state.index], tma_bar_ptr=barrier)
            pipe.producer_commit(state)
            state.advance()
        pipe.producer_tail(state)  # Until the last stage was read.
    else:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        total = cutlass.Float32(0.0)
        for _ in cutlass.range(steps, unroll=1):
            pipe.consumer_wait(state)  # The bytes have landed.
            total += ring[0, thread, state.index]
            pipe.consumer_release(state)
            state.advance()
        pipeline.NamedBarrier(barrier_id=1, num_threads=32 * CONSUMERS).arrive_and_wait()
        out[thread] = total


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    box = cute.make_layout((1, WIDTH), stride=(0, 1))
    operation = cpasync.CopyBulkTensorTileG2SOp()
    load, coordinates = cpasync.make_tiled_tma_atom(operation, rows, box, (1, WIDTH))
    column_sums(load, coordinates, out).launch(grid=(1, 1, 1), block=(32 * (CONSUMERS + 1), 1, 1))


rows, out = torch.randn(6, WIDTH).cuda(), torch.zeros(WIDTH).cuda()
launch(from_dlpack(rows, assumed_align=16), from_dlpack(out))
assert torch.allclose(out, rows.sum(0), atol=1e-5)
