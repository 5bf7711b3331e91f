"""One tcgen05 product, C = A B^T: operands in shared memory, sums in Tensor Memory (sm_100)."""

import cutlass
import torch
from cutlass import Float16, Float32, Int32, Int64, cute
from cutlass._mlir.dialects import nvvm
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

M, N, K = 128, 64, 64
AFTER, BEFORE = nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC, nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC
COLUMNS = 64  # Of Tensor Memory: N sums of 32 bits per row. 32, 64, 128, 256 or 512 may be had.


def tile_layout(rows):
    """[rows, K] with K contiguous, in rows of 128 bytes that are swizzled as tcgen05 reads them."""
    atom = tcgen05.make_smem_layout_atom(tcgen05.SmemLayoutAtomKind.K_SW128, Float16)
    return cute.tile_to_shape(atom, (rows, K), order=(0, 1))


@cute.kernel
def product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, mma: cute.TiledMma):
    """Four warps fill shared memory, the first issues the product, each reads its 32 rows."""
    thread, warp = cute.arch.thread_idx()[0], cute.arch.make_warp_uniform(cute.arch.warp_idx())
    shared = SmemAllocator()
    layouts = [tile_layout(rows) for rows in (M, N)]
    s_a, s_b = [shared.allocate_tensor(Float16, x.outer, 1024, x.inner) for x in layouts]
    place, done = shared.allocate_array(Int32), shared.allocate_array(Int64)
    if warp == 0:  # One warp allocates; the address comes to shared memory.
        cute.arch.alloc_tmem(COLUMNS, place)
        cute.arch.relinquish_tmem_alloc_permit()
    if thread == 0:
        cute.arch.mbarrier_init(done, 1)
    for i in cutlass.range(M * K // 128):
        s_a[i * 2 + thread // K, thread % K] = a[i * 2 + thread // K, thread % K]
    for i in cutlass.range(N * K // 128):
        s_b[i * 2 + thread // K, thread % K] = b[i * 2 + thread // K, thread % K]
    cute.arch.mbarrier_init_fence()
    cute.arch.fence_proxy("async.shared", space="cta")  # What threads wrote, the product may read.
    cute.arch.sync_threads()
    columns = cute.arch.retrieve_tmem_ptr(Float32, 16, place)

    mine = mma.get_slice(0)
    left = mma.make_fragment_A(mine.partition_A(s_a))  # Descriptors: no register holds operands.
    right = mma.make_fragment_B(mine.partition_B(s_b))
    sums = cute.make_tensor(columns, mma.make_fragment_C(mma.partition_shape_C((M, N))).layout)
    if warp == 0:  # The whole warp calls gemm, one thread issues it.
        for k in cutlass.range_constexpr(K // 16):
            mma.set(tcgen05.Field.ACCUMULATE, k > 0)  # The first step overwrites.
            cute.gemm(mma, sums, left[None, None, k], right[None, None, k], sums)
        with cute.arch.elect_one():
            tcgen05.commit(done)  # Arrives when the products above are done.
    cute.arch.mbarrier_wait(done, 0)  # Phase 0: the barrier's first use.
    nvvm.tcgen05_fence(AFTER)  # The DSL has no wrapper for this.

    # Row i lies in lane i, a column per N: each thread reads its lane to 64 registers.
    rows = cute.make_tensor(columns, cute.make_layout((M, N), stride=(1 << 16, 1)))
    load = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(N)), Float32)
    copy = tcgen05.make_tmem_copy(load, rows)
    part = copy.get_slice(thread)
    values = cute.make_rmem_tensor(part.partition_D(c).shape, Float32)
    cute.copy(copy, part.partition_S(rows), values)
    cute.arch.fence_view_async_tmem_load()  # tcgen05.wait::ld: until here registers are empty.
    cute.autovec_copy(values, part.partition_D(c))
    nvvm.tcgen05_fence(BEFORE)
    cute.arch.sync_threads()
    nvvm.tcgen05_fence(AFTER)
    if warp == 0:  # The warp that allocated gives back.
        cute.arch.dealloc_tmem(columns, COLUMNS)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    """The op, then a tiled MMA of it: K of an instruction is 16 for 16-bit operands."""
    op = tcgen05.MmaF16BF16Op(
        Float16, Float32, (M, N, 16), tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM,
        OperandMajorMode.K, OperandMajorMode.K,
    )  # fmt: skip
    product(a, b, c, cute.make_tiled_mma(op)).launch(grid=(1, 1, 1), block=(128, 1, 1))


a, b = (torch.randn(rows, K).half().cuda() for rows in (M, N))
c = torch.zeros(M, N).cuda()
launch(*(from_dlpack(x, assumed_align=16) for x in (a, b, c)))
print("right:", torch.allclose(c, a.float() @ b.float().T, atol=1e-2))
