"""A product in fp8 on Hopper whose partial sums go to fp32 registers every 128 of k."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator, hopper_helpers

ROWS, COLUMNS, WIDTH, INTERVAL = 64, 64, 512, 128
E4M3 = cutlass.Float8E4M3FN
K = cute.nvgpu.OperandMajorMode.K


@cute.kernel
def multiply(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, mma: cute.TiledMma):
    """128 threads: out = a b^T."""
    thread, memory = cute.arch.thread_idx()[0], SmemAllocator()
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, E4M3)
    layout = cute.tile_to_shape(atom, (ROWS, WIDTH), order=(0, 1))
    s_a = memory.allocate_tensor(E4M3, layout.outer, 1024, swizzle=layout.inner)
    s_b = memory.allocate_tensor(E4M3, layout.outer, 1024, swizzle=layout.inner)
    for i in cutlass.range(ROWS * WIDTH // 128, unroll=1):
        row, column = (i * 128 + thread) // WIDTH, (i * 128 + thread) % WIDTH
        s_a[row, column] = a[row, column]
        s_b[row, column] = b[row, column]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()

    mine = mma.get_slice(thread)
    ops_a = mma.make_fragment_A(mine.partition_A(s_a))
    ops_b = mma.make_fragment_B(mine.partition_B(s_b))
    part = mma.make_fragment_C(mine.partition_shape_C((ROWS, COLUMNS)))
    total = cute.make_rmem_tensor(part.layout, cutlass.Float32)
    total.fill(0.0)
    for block in cutlass.range_constexpr(WIDTH // INTERVAL):
        warpgroup.fence()
        for step in cutlass.range_constexpr(INTERVAL // 32):  # four wgmma of 32
            mma.set(warpgroup.Field.ACCUMULATE, step > 0)  # each block begins at zero
            at = block * (INTERVAL // 32) + step
            cute.gemm(mma, part, ops_a[None, None, at], ops_b[None, None, at], part)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        total.store(total.load() + part.load())  # the sum that lasts: fp32 adds of threads
    cute.autovec_copy(total, mine.partition_C(out))


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    """One block for [64, 512] times [64, 512] transposed."""
    smem = warpgroup.OperandSource.SMEM
    make = hopper_helpers.make_trivial_tiled_mma
    mma = make(E4M3, E4M3, K, K, cutlass.Float32, (1, 1, 1), (ROWS, COLUMNS), smem)
    multiply(a, b, out, mma).launch(grid=(1, 1, 1), block=(128, 1, 1))


a, b = (torch.randn(ROWS, WIDTH).to(torch.float8_e4m3fn).cuda() for _ in range(2))
out = torch.zeros(ROWS, COLUMNS).cuda()
wrapped = [from_dlpack(x.view(torch.uint8), assumed_align=16) for x in (a, b)]
for tensor in wrapped:
    tensor.element_type = E4M3
launch(*wrapped, from_dlpack(out, assumed_align=16))
print("right:", torch.allclose(out, a.float() @ b.float().T, rtol=1e-4, atol=1e-2))
