"""Two products of a warpgroup; the result of the first is operand A of the second, in registers."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator, hopper_helpers

TILE = 64  # Rows, keys and width.
BF16 = cutlass.BFloat16


def tile_layout(kind):
    atom = warpgroup.make_smem_layout_atom(kind, BF16)
    by_rows = kind == warpgroup.SmemLayoutAtomKind.K_SW128
    return cute.tile_to_shape(atom, (TILE, TILE), order=(0, 1) if by_rows else (1, 0))


# %% cute.nvgpu.warpgroup.OperandSource cute.nvgpu.OperandMajorMode
def mma_of(b_major, a_in_registers):
    """A from registers or from shared memory; B is read from shared memory in any case."""
    source = warpgroup.OperandSource.RMEM if a_in_registers else warpgroup.OperandSource.SMEM
    kinds = (BF16, BF16, cute.nvgpu.OperandMajorMode.K, b_major, cutlass.Float32)
    return hopper_helpers.make_trivial_tiled_mma(*kinds, (1, 1, 1), (TILE, TILE), source)


# %% cute.make_rmem_tensor cute.make_tensor
@cute.jit
def as_operand_a(acc: cute.Tensor, keys: cutlass.Constexpr):
    """An fp32 accumulator [64, keys] as operand A in bf16: no shuffle, no shared memory."""
    steps = cute.make_layout(((2, 2, 2), 1, keys // 16), stride=((1, 2, 4), 0, 8))
    operand = cute.make_rmem_tensor(steps, BF16)
    same = cute.make_tensor(operand.iterator, acc.layout)  # the same registers, in acc's order
    same.store(acc.load().to(BF16))
    return operand


# %% cute.nvgpu.warpgroup.fence cute.nvgpu.warpgroup.wait_group
@cute.kernel
def two_products(
    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor,
    first: cute.TiledMma, second: cute.TiledMma,
):  # fmt: skip
    thread, allocator = cute.arch.thread_idx()[0], SmemAllocator()
    k_major, mn_major = (tile_layout(getattr(warpgroup.SmemLayoutAtomKind, name))
                         for name in ("K_SW128", "MN_SW128"))  # fmt: skip
    s_q, s_k, s_v = (
        allocator.allocate_tensor(BF16, layout.outer, 1024, swizzle=layout.inner)
        for layout in (k_major, k_major, mn_major)
    )
    for i in cutlass.range_constexpr(TILE * TILE // 128):
        row, column = (i * 128 + thread) // TILE, thread % TILE
        s_q[row, column] = q[row, column]
        s_k[row, column] = k[row, column]
        s_v[column, row] = v[row, column]  # B of the second product: [width, keys]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()

    mine = first.get_slice(thread)
    left = first.make_fragment_A(mine.partition_A(s_q))
    keys = first.make_fragment_B(mine.partition_B(s_k))
    score = first.make_fragment_C(mine.partition_shape_C((TILE, TILE)))
    warpgroup.fence()
    for step in cutlass.range_constexpr(TILE // 16):
        first.set(warpgroup.Field.ACCUMULATE, step > 0)
        cute.gemm(first, score, left[None, None, step], keys[None, None, step], score)
    warpgroup.commit_group()
    warpgroup.wait_group(0)  # Until here `score` has no value.
    score.store(cute.math.exp2(score.load(), fastmath=True))  # A softmax would stand here.

    weights = as_operand_a(score, TILE)
    mine = second.get_slice(thread)
    values = second.make_fragment_B(mine.partition_B(s_v))
    acc = second.make_fragment_C(mine.partition_shape_C((TILE, TILE)))
    warpgroup.fence()  # The registers of `weights` are written.
    for step in cutlass.range_constexpr(TILE // 16):
        second.set(warpgroup.Field.ACCUMULATE, step > 0)
        cute.gemm(second, acc, weights[None, None, step], values[None, None, step], acc)
    warpgroup.commit_group()
    warpgroup.wait_group(0)  # Until here `weights` must keep its values, too.
    cute.autovec_copy(acc, mine.partition_C(out))


@cute.jit
def launch(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor):
    major = cute.nvgpu.OperandMajorMode
    first, second = mma_of(major.K, False), mma_of(major.MN, True)
    two_products(q, k, v, out, first, second).launch(grid=(1, 1, 1), block=(128, 1, 1))


q, k, v = ((torch.randn(TILE, TILE) / 4).bfloat16().cuda() for _ in range(3))
out = torch.zeros(TILE, TILE).cuda()
launch(*(from_dlpack(x, assumed_align=16) for x in (q, k, v, out)))
weights = torch.exp2(q.float() @ k.float().T).bfloat16().float()
assert torch.allclose(out, weights @ v.float(), rtol=2e-2, atol=2e-2)
