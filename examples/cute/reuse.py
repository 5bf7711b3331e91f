"""An output tile that takes the place of Q in shared memory, and leaves by TMA from there."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator, hopper_helpers

ROWS, KEYS, WIDTH = 64, 64, 128
K = cute.nvgpu.OperandMajorMode.K
TILE = ((ROWS, KEYS), (KEYS, 1))  # The output in fp32 takes the bytes of Q in fp16.


@cute.kernel
def scores(
    q: cute.Tensor, k: cute.Tensor, store: cute.CopyAtom, out: cute.Tensor, mma: cute.TiledMma
):
    """128 threads: out = q k^T."""
    thread, memory, dtype = cute.arch.thread_idx()[0], SmemAllocator(), cutlass.Float16
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, dtype)
    layout = cute.tile_to_shape(atom, (ROWS, WIDTH), order=(0, 1))
    s_q = memory.allocate_tensor(dtype, layout.outer, 1024, swizzle=layout.inner)
    s_k = memory.allocate_tensor(dtype, layout.outer, 1024, swizzle=layout.inner)
    # The same bytes once more, in another type and without the swizzle.
    place = cute.recast_ptr(s_q.iterator, dtype=cutlass.Float32)
    s_out = cute.make_tensor(place, cute.make_layout(TILE[0], stride=TILE[1]))

    for i in cutlass.range(ROWS * WIDTH // 128, unroll=1):
        row, column = (i * 128 + thread) // WIDTH, (i * 128 + thread) % WIDTH
        s_q[row, column] = q[row, column]
        s_k[row, column] = k[row, column]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()

    mine = mma.get_slice(thread)
    a = mma.make_fragment_A(mine.partition_A(s_q))
    b = mma.make_fragment_B(mine.partition_B(s_k))
    acc = mma.make_fragment_C(mine.partition_shape_C((ROWS, KEYS)))
    warpgroup.fence()
    for step in cutlass.range_constexpr(WIDTH // 16):
        mma.set(warpgroup.Field.ACCUMULATE, step > 0)
        cute.gemm(mma, acc, a[None, None, step], b[None, None, step], acc)
    warpgroup.commit_group()

    warpgroup.wait_group(0)  # my warpgroup's products have read Q
    cute.arch.sync_threads()  # and those of all others that read it
    cute.autovec_copy(acc, mine.partition_C(s_out))
    cute.arch.fence_proxy("async.shared", space="cta")  # threads wrote, TMA reads
    cute.arch.sync_threads()  # written by all
    shared, there = cpasync.tma_partition(
        store, 0, cute.make_layout(1), cute.group_modes(s_out, 0, 2), cute.group_modes(out, 0, 2)
    )
    if warp == 0:
        cute.copy(store, shared, there)
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # before the next Q, or the end


@cute.jit
def launch(q: cute.Tensor, k: cute.Tensor, out: cute.Tensor):
    """One block."""
    smem, f16 = warpgroup.OperandSource.SMEM, cutlass.Float16
    make = hopper_helpers.make_trivial_tiled_mma
    mma = make(f16, f16, K, K, cutlass.Float32, (1, 1, 1), (ROWS, KEYS), smem)
    box = cute.make_layout(TILE[0], stride=TILE[1])
    store, coordinates = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(), out, box, (ROWS, KEYS)
    )
    scores(q, k, store, coordinates, mma).launch(grid=(1, 1, 1), block=(128, 1, 1))


q, k = (torch.randn(ROWS, WIDTH).half().cuda() for _ in range(2))
out = torch.zeros(ROWS, KEYS).cuda()
launch(*(from_dlpack(x, assumed_align=16) for x in (q, k, out)))
print("right:", torch.allclose(out, q.float() @ k.float().T, atol=1e-3))
