"""One product of a warpgroup: 64 x 64 x 64, both operands read from swizzled shared memory."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

TILE = 64
K_MAJOR = cute.nvgpu.OperandMajorMode.K


def tile_layout():
    """64 x 64, k in rows of 128 bytes, swizzled as wgmma expects."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, cutlass.Float16)
    return cute.tile_to_shape(atom, (TILE, TILE), order=(0, 1))


@cute.kernel
def product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, mma: cute.TiledMma):
    """128 threads: they fill shared memory, then the tensor cores read it."""
    thread, allocator, layout = cute.arch.thread_idx()[0], SmemAllocator(), tile_layout()
    s_a, s_b = [
        allocator.allocate_tensor(cutlass.Float16, layout.outer, 1024, swizzle=layout.inner)
        for _ in range(2)
    ]
    for i in cutlass.range_constexpr(TILE * TILE // 128):
        row, column = (i * 128 + thread) // TILE, thread % TILE
        s_a[row, column] = a[row, column]
        s_b[row, column] = b[row, column]
    cute.arch.fence_proxy("async.shared", space="cta")  # What threads wrote, wgmma may read,
    cute.arch.sync_threads()  # and what the others wrote.
    mine = mma.get_slice(thread)
    left = mma.make_fragment_A(mine.partition_A(s_a))
    right = mma.make_fragment_B(mine.partition_B(s_b))
    acc = mma.make_fragment_C(mine.partition_shape_C((TILE, TILE)))
    warpgroup.fence()
    for k in cutlass.range_constexpr(4):  # An instruction multiplies over k = 16.
        mma.set(warpgroup.Field.ACCUMULATE, k > 0)
        cute.gemm(mma, acc, left[None, None, k], right[None, None, k], acc)
    warpgroup.commit_group()
    warpgroup.wait_group(0)  # Until here the accumulator has no value.
    cute.autovec_copy(acc, mine.partition_C(c))


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    """C = A B^T."""
    op = warpgroup.MmaF16BF16Op(
        cutlass.Float16, cutlass.Float32, (64, TILE, 16), warpgroup.OperandSource.SMEM,
        K_MAJOR, K_MAJOR,
    )  # fmt: skip
    product(a, b, c, cute.make_tiled_mma(op)).launch(grid=(1, 1, 1), block=(128, 1, 1))


a, b = (torch.randn(TILE, TILE).half().cuda() for _ in range(2))
c = torch.zeros(TILE, TILE).cuda()
launch(*(from_dlpack(x, assumed_align=16) for x in (a, b, c)))
print("right:", torch.allclose(c, a.float() @ b.float().T, atol=1e-2))
