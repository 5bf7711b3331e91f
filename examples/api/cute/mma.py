"""A product of one warp by mma.sync, operands through ldmatrix (sm_80 and later); without a GPU."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import warp
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

M, N, K = 16, 16, 64


# %% cute.make_tiled_mma cute.nvgpu.warp.MmaF16BF16Op cute.gemm cute.nvgpu.warp.LdMatrix8x8x16bOp
# %% cute.make_tiled_copy_A cute.make_tiled_copy_B cute.autovec_copy cute.arch.sync_threads
# %% cute.TiledMma
@cute.kernel
def product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, tiled: cute.TiledMma):
    thread = cute.arch.thread_idx()[0]
    allocator = SmemAllocator()
    rows = cute.make_ordered_layout((M, K), order=(1, 0))
    s_a = allocator.allocate_tensor(cutlass.Float16, rows, 16)
    s_b = allocator.allocate_tensor(cutlass.Float16, cute.make_layout((N, K), stride=(K, 1)), 16)
    for i in cutlass.range_constexpr(M * K // 32):
        at = i * 32 + thread
        s_a[at // K, at % K] = a[at // K, at % K]
        s_b[at // K, at % K] = b[at // K, at % K]
    cute.arch.sync_threads()
    mine = tiled.get_slice(thread)
    r_a = tiled.make_fragment_A(mine.partition_A(s_a))
    r_b = tiled.make_fragment_B(mine.partition_B(s_b))
    acc = tiled.make_fragment_C(tiled.partition_shape_C((M, N)))
    acc.fill(0.0)
    matrices = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), cutlass.Float16)
    load_a = cute.make_tiled_copy_A(matrices, tiled).get_slice(thread)
    load_b = cute.make_tiled_copy_B(matrices, tiled).get_slice(thread)
    cute.copy(load_a, load_a.partition_S(s_a), load_a.retile(r_a))
    cute.copy(load_b, load_b.partition_S(s_b), load_b.retile(r_b))
    cute.gemm(tiled, acc, r_a, r_b, acc)
    cute.autovec_copy(acc, mine.partition_C(c))


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    operation = warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    tiled = cute.make_tiled_mma(operation, permutation_mnk=(M, N, 16))
    product(a, b, c, tiled).launch(grid=(1, 1, 1), block=(32, 1, 1))


a, b = (torch.randn(rows, K).half().cuda() for rows in (M, N))
c = torch.empty(M, N).cuda()
launch(*(from_dlpack(t, assumed_align=16) for t in (a, b, c)))
assert torch.allclose(c, a.float() @ b.float().T, atol=1e-2)
