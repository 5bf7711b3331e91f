"""TMA, tcgen05, epilogue: handed on by PipelineTmaUmma and PipelineUmmaAsync (sm_100)."""

import cutlass
import torch
from cutlass import Float16, Float32, Int32, cute, pipeline
from cutlass._mlir.dialects import nvvm
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

M, N, K, SLAB, STAGES = 128, 64, 256, 64, 2
EPILOGUE = 128  # Threads: warps 0 to 3 read the sums, warp 4 multiplies, warp 5 loads.
BYTES = (M + N) * SLAB * 2  # Of both tiles of a stage.


def ring_layout(rows):
    """[rows, SLAB, STAGES], rows of 128 bytes swizzled as TMA writes and tcgen05 reads them."""
    atom = tcgen05.make_smem_layout_atom(tcgen05.SmemLayoutAtomKind.K_SW128, Float16)
    return cute.tile_to_shape(atom, (rows, SLAB, STAGES), order=(0, 1, 2))


# %% pipeline.PipelineTmaUmma pipeline.PipelineUmmaAsync
@cute.kernel
def product(
    load_a: cute.CopyAtom, a: cute.Tensor, load_b: cute.CopyAtom, b: cute.Tensor,
    c: cute.Tensor, mma: cute.TiledMma,
):  # fmt: skip
    """Warp 5 loads, warp 4 multiplies, warps 0 to 3 read the sums."""
    thread, warp = cute.arch.thread_idx()[0], cute.arch.make_warp_uniform(cute.arch.warp_idx())
    shared = SmemAllocator()
    layouts = [ring_layout(rows) for rows in (M, N)]
    s_a, s_b = [shared.allocate_tensor(Float16, x.outer, 1024, x.inner) for x in layouts]
    place = shared.allocate_array(Int32)
    one = pipeline.CooperativeGroup(pipeline.Agent.Thread)
    tiles = pipeline.PipelineTmaUmma.create(
        num_stages=STAGES, producer_group=one, consumer_group=one, tx_count=BYTES
    )
    sums = pipeline.PipelineUmmaAsync.create(
        num_stages=1,
        producer_group=one,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, EPILOGUE),
    )
    if warp == 0:
        cute.arch.alloc_tmem(N, place)
        cute.arch.relinquish_tmem_alloc_permit()
    cute.arch.sync_threads()
    columns = cute.arch.retrieve_tmem_ptr(Float32, 16, place)
    mine = mma.get_slice(0)
    acc = cute.make_tensor(columns, mma.make_fragment_C(mma.partition_shape_C((M, N))).layout)
    if warp == 5:
        at_a, from_a = parts(load_a, s_a, a, M)
        at_b, from_b = parts(load_b, s_b, b, N)
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for step in cutlass.range(K // SLAB, unroll=1):
            tiles.producer_acquire(state)  # The products that read this stage are done.
            full = tiles.producer_get_barrier(state)
            cute.copy(load_a, from_a[None, step], at_a[None, state.index], tma_bar_ptr=full)
            cute.copy(load_b, from_b[None, step], at_b[None, state.index], tma_bar_ptr=full)
            state.advance()
        tiles.producer_tail(state)
    elif warp == 4:
        left = mma.make_fragment_A(mine.partition_A(s_a))
        right = mma.make_fragment_B(mine.partition_B(s_b))
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
        sums.producer_acquire(done)  # The epilogue has read the sums before these.
        for step in cutlass.range(K // SLAB, unroll=1):
            tiles.consumer_wait(state)
            for k in cutlass.range_constexpr(SLAB // 16):
                mma.set(tcgen05.Field.ACCUMULATE, step > 0 or k > 0)
                at = (None, None, k, state.index)
                cute.gemm(mma, acc, left[at], right[at], acc)
            tiles.consumer_release(state)  # A commit: it arrives when they have read the stage.
            state.advance()
        sums.producer_commit(done)  # Arrives when all products are done.
        done.advance()
        sums.producer_tail(done)
    else:
        ready = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
        sums.consumer_wait(ready)
        nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC)
        rows = cute.make_tensor(columns, cute.make_layout((M, N), stride=(1 << 16, 1)))
        read = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(N)), Float32)
        copy = tcgen05.make_tmem_copy(read, rows)
        part = copy.get_slice(thread)
        values = cute.make_rmem_tensor(part.partition_D(c).shape, Float32)
        cute.copy(copy, part.partition_S(rows), values)
        cute.arch.fence_view_async_tmem_load()
        nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC)
        sums.consumer_release(ready)  # By each of the 128 threads.
        cute.autovec_copy(values, part.partition_D(c))
    cute.arch.sync_threads()
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC)
    if warp == 0:
        cute.arch.dealloc_tmem(columns, N)


@cute.jit
def parts(load, ring, rows, extent: cutlass.Constexpr):
    """A stage of the ring and the slabs in memory, as TMA takes them."""
    slabs = cute.local_tile(rows, (extent, SLAB), (0, None))
    return cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(ring, 0, 2), cute.group_modes(slabs, 0, 2)
    )


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    """C = A B^T, a block of six warps."""
    op = tcgen05.MmaF16BF16Op(
        Float16, Float32, (M, N, 16), tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM,
        OperandMajorMode.K, OperandMajorMode.K,
    )  # fmt: skip
    way = cpasync.CopyBulkTensorTileG2SOp()
    one_a, one_b = (cute.slice_(ring_layout(rows), (None, None, 0)) for rows in (M, N))
    load_a, at_a = cpasync.make_tiled_tma_atom(way, a, one_a, (M, SLAB))
    load_b, at_b = cpasync.make_tiled_tma_atom(way, b, one_b, (N, SLAB))
    product(load_a, at_a, load_b, at_b, c, cute.make_tiled_mma(op)).launch(
        grid=(1, 1, 1), block=(192, 1, 1)
    )


a, b = (torch.randn(rows, K).half().cuda() for rows in (M, N))
c = torch.zeros(M, N).cuda()
launch(*(from_dlpack(x, assumed_align=16) for x in (a, b, c)))
print("right:", torch.allclose(c, a.float() @ b.float().T, atol=2e-2))
