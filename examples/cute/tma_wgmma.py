"""C = A B^T on Hopper, the least there is: TMA load, mbarrier wait, wgmma, store."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator, hopper_helpers

TILE, BYTES = 64, 2 * 64 * 64 * 2  # Bytes of a step: a tile of A, one of B, 16 bits each.
K_MAJOR, SWIZZLE = cute.nvgpu.OperandMajorMode.K, warpgroup.SmemLayoutAtomKind.K_SW128


def tile_layout():
    """64 x 64 in rows of 128 bytes: TMA's box and wgmma's descriptor take its swizzle."""
    atom = warpgroup.make_smem_layout_atom(SWIZZLE, cutlass.Float16)
    return cute.tile_to_shape(atom, (TILE, TILE), order=(0, 1))


@cute.kernel
def product(load_a: cute.CopyAtom, a: cute.Tensor, load_b: cute.CopyAtom, b: cute.Tensor,
            c: cute.Tensor, mma: cute.TiledMma):  # fmt: skip
    """One block of one warpgroup, 128 threads."""
    thread, allocator, layout = cute.arch.thread_idx()[0], SmemAllocator(), tile_layout()
    s_a = allocator.allocate_tensor(cutlass.Float16, layout.outer, 1024, layout.inner)
    s_b = allocator.allocate_tensor(cutlass.Float16, layout.outer, 1024, layout.inner)
    full = allocator.allocate_array(cutlass.Int64, 1)
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)  # An arrival and the announced bytes end a phase.
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    steps = [cute.local_tile(x, (TILE, TILE), (0, None)) for x in (a, b)]
    box_a, box_b, at_a, at_b = (cute.group_modes(x, 0, 2) for x in (*steps, s_a, s_b))
    to_a, from_a = cpasync.tma_partition(load_a, 0, cute.make_layout(1), at_a, box_a)
    to_b, from_b = cpasync.tma_partition(load_b, 0, cute.make_layout(1), at_b, box_b)
    mine = mma.get_slice(thread)
    left = mma.make_fragment_A(mine.partition_A(s_a))  # Descriptors of shared memory,
    right = mma.make_fragment_B(mine.partition_B(s_b))
    acc = mma.make_fragment_C(mine.partition_shape_C((TILE, TILE)))  # and 32 registers.
    for step in cutlass.range(a.shape[1] // TILE, unroll=1):
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, BYTES)  # Too many: hangs.
            cute.copy(load_a, from_a[None, step], to_a, tma_bar_ptr=full)
            cute.copy(load_b, from_b[None, step], to_b, tma_bar_ptr=full)
        cute.arch.mbarrier_wait(full, step & 1)  # Parity 0, 1, 0. Left out: old bytes.
        warpgroup.fence()  # Left out: registers written before are not seen.
        for k in cutlass.range_constexpr(TILE // 16):
            mma.set(warpgroup.Field.ACCUMULATE, step * 4 + k > 0)  # The first overwrites.
            cute.gemm(mma, acc, left[None, None, k], right[None, None, k], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)  # Until here acc has no value, and tiles are being read.
        cute.arch.sync_threads()  # Left out: a tile is refilled under a slower warp's product.
    cute.autovec_copy(acc, mine.partition_C(c))


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    """On the host: a TMA descriptor per operand, and the instruction."""
    kinds = (cutlass.Float16, cutlass.Float16, K_MAJOR, K_MAJOR, cutlass.Float32)
    mma = hopper_helpers.make_trivial_tiled_mma(*kinds, (1, 1, 1), (TILE, TILE))
    kind, box = cpasync.CopyBulkTensorTileG2SOp(), (tile_layout(), (TILE, TILE))
    loads = [part for x in (a, b) for part in cpasync.make_tiled_tma_atom(kind, x, *box)]
    product(*loads, c, mma).launch(grid=(1, 1, 1), block=(128, 1, 1))


a, b = (torch.randn(64, 192).half().cuda() for _ in range(2))
c = torch.zeros(64, 64).cuda()
launch(*(from_dlpack(x, assumed_align=16) for x in (a, b, c)))
print("right:", torch.allclose(c, a.float() @ b.float().T, atol=1e-2))
