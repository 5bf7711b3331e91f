"""One tile in shared memory, read as K by S = Q K^T and transposed, as V, by O = S V."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator, hopper_helpers

ROWS, KEYS, WIDTH, STAGES = 64, 64, 64, 2
KINDS = warpgroup.SmemLayoutAtomKind
K, MN = cute.nvgpu.OperandMajorMode.K, cute.nvgpu.OperandMajorMode.MN
SMEM, RMEM = warpgroup.OperandSource.SMEM, warpgroup.OperandSource.RMEM


def ring(dtype, kind, shape):
    """Stages of a tile in the layout that wgmma and TMA agree on."""
    atom = warpgroup.make_smem_layout_atom(kind, dtype)
    return cute.tile_to_shape(atom, (*shape, STAGES), order=(0, 1, 2))


@cute.kernel
def attend(q: cute.Tensor, kv: cute.Tensor, out: cute.Tensor, qk: cute.TiledMma, pv: cute.TiledMma):
    """128 threads: stage 1 holds the keys; both products read it."""
    thread, memory, dtype = cute.arch.thread_idx()[0], SmemAllocator(), cutlass.Float16
    layout = ring(dtype, KINDS.K_SW128, (KEYS, WIDTH))
    s_q = memory.allocate_tensor(dtype, layout.outer, 1024, swizzle=layout.inner)
    s_k = memory.allocate_tensor(dtype, layout.outer, 1024, swizzle=layout.inner)
    # The same bytes once more: no copy, another layout. The iterator keeps the swizzle.
    s_v = cute.make_tensor(s_k.iterator, cute.select(s_k.layout, mode=[1, 0, 2]))

    for i in cutlass.range_constexpr(KEYS * WIDTH // 128):
        row, column = (i * 128 + thread) // WIDTH, thread % WIDTH
        s_q[row, column, 0] = q[row, column]
        s_k[row, column, 1] = kv[row, column]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()

    first, second = qk.get_slice(thread), pv.get_slice(thread)
    a = qk.make_fragment_A(first.partition_A(s_q))
    k = qk.make_fragment_B(first.partition_B(s_k))  # [keys, width]: sums over width
    v = pv.make_fragment_B(second.partition_B(s_v))  # [width, keys]: sums over keys
    score = qk.make_fragment_C(first.partition_shape_C((ROWS, KEYS)))
    acc = pv.make_fragment_C(second.partition_shape_C((ROWS, WIDTH)))
    warpgroup.fence()
    for step in cutlass.range_constexpr(WIDTH // 16):
        qk.set(warpgroup.Field.ACCUMULATE, step > 0)
        cute.gemm(qk, score, a[None, None, step, 0], k[None, None, step, 1], score)
    warpgroup.commit_group()
    warpgroup.wait_group(0)

    # The accumulator's own registers are operand A of the second product, in 16 bits.
    steps = cute.make_layout(((2, 2, 2), 1, KEYS // 16), stride=((1, 2, 4), 0, 8))
    p = cute.make_rmem_tensor(steps, dtype)
    for i in cutlass.range_constexpr(cute.size(score)):
        p[i] = score[i].to(dtype)
    warpgroup.fence()
    for step in cutlass.range_constexpr(KEYS // 16):
        pv.set(warpgroup.Field.ACCUMULATE, step > 0)
        cute.gemm(pv, acc, p[None, None, step], v[None, None, step, 1], acc)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    cute.autovec_copy(acc, second.partition_C(out))


@cute.jit
def launch(q: cute.Tensor, kv: cute.Tensor, out: cute.Tensor):
    """Two products over one tile: keys K-major, values MN-major."""
    f16, f32 = cutlass.Float16, cutlass.Float32
    make = hopper_helpers.make_trivial_tiled_mma
    qk = make(f16, f16, K, K, f32, (1, 1, 1), (ROWS, KEYS), SMEM)
    pv = make(f16, f16, K, MN, f32, (1, 1, 1), (ROWS, WIDTH), RMEM)
    attend(q, kv, out, qk, pv).launch(grid=(1, 1, 1), block=(128, 1, 1))


q, kv = (torch.randn(ROWS, WIDTH).half().cuda() / 8 for _ in range(2))
out = torch.zeros(ROWS, WIDTH).cuda()
launch(*(from_dlpack(x, assumed_align=16) for x in (q, kv, out)))
expected = (q.float() @ kv.float().T).half().float() @ kv.float()
print("right:", torch.allclose(out, expected, atol=1e-3))
