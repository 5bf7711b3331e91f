"""A 64x64 tile of A B^T by wgmma from two stages that TMA fills: the shape of a Hopper GEMM.

The warpgroup loads, waits for the bytes, multiplies asynchronously, waits for the tensor cores,
and only then gives a stage back or reads its accumulators.
"""

import cutlass
import torch
from cutlass import cute, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator, hopper_helpers

TILE, STAGES, MMA_STEPS, WARPS = 64, 2, 4, 4
STEP_BYTES = 2 * TILE * TILE * 2
K_MAJOR = warpgroup.OperandMajorMode.K


@cute.struct
class Storage:
    """Shared memory: barriers per stage, and the stages of both operands."""

    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    free: cute.struct.MemRange[cutlass.Int64, STAGES]
    a: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, STAGES * TILE * TILE], 1024]
    b: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, STAGES * TILE * TILE], 1024]


def tiles(stages):
    """Tiles of 64x64, K-major, 128-byte swizzle."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, cutlass.Float16)
    return cute.tile_to_shape(atom, (TILE, TILE, stages), order=(0, 1, 2))


def tiled_mma():
    """C += A B^T of one warpgroup, both operands from shared memory."""
    kinds = (cutlass.Float16, cutlass.Float16, K_MAJOR, K_MAJOR, cutlass.Float32)
    return hopper_helpers.make_trivial_tiled_mma(*kinds, (1, 1, 1), (TILE, TILE))


def boxes(load, shared, matrix):
    """Stages of shared memory and boxes of a matrix, as TMA pairs them."""
    blocks = cute.local_tile(matrix, (TILE, TILE), (0, None))
    return cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(blocks, 0, 2)
    )


@cute.kernel
def product(
    load_a: cute.CopyAtom, a: cute.Tensor, load_b: cute.CopyAtom, b: cute.Tensor, out: cute.Tensor
):
    """One block of one warpgroup."""
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = SmemAllocator().allocate(Storage)
    full, free = storage.full.data_ptr(), storage.free.data_ptr()
    if thread == 0:
        for stage in range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(free + stage, WARPS)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    layout = tiles(STAGES)
    s_a = storage.a.get_tensor(layout.outer, swizzle=layout.inner)
    s_b = storage.b.get_tensor(layout.outer, swizzle=layout.inner)
    mma = tiled_mma()
    mine = mma.get_slice(thread)
    operand_a = mma.make_fragment_A(mine.partition_A(s_a))
    operand_b = mma.make_fragment_B(mine.partition_B(s_b))
    acc = mma.make_fragment_C(mine.partition_shape_C((TILE, TILE)))
    acc.fill(0.0)
    from_a, from_b = boxes(load_a, s_a, a), boxes(load_b, s_b, b)
    steps = a.shape[1] // TILE
    for step in cutlass.range(steps, unroll=1):
        stage, round_ = step % STAGES, step // STAGES
        if warp == 0:
            cute.arch.mbarrier_wait(free + stage, round_ & 1 ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, STEP_BYTES)
            cute.copy(
                load_a, from_a[1][None, step], from_a[0][None, stage], tma_bar_ptr=full + stage
            )
            cute.copy(
                load_b, from_b[1][None, step], from_b[0][None, stage], tma_bar_ptr=full + stage
            )
        cute.arch.mbarrier_wait(full + stage, round_ & 1)
        warpgroup.fence()
        mma.set(warpgroup.Field.ACCUMULATE, True)
        for k in range_constexpr(MMA_STEPS):
            cute.gemm(
                mma, acc, operand_a[None, None, k, stage], operand_b[None, None, k, stage], acc
            )
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(free + stage)
    result = mine.partition_C(out)
    for i in range_constexpr(cute.size(acc)):
        result[i] = acc[i]


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    """Launch on a [64, k] and b [64, k]."""
    box = cute.slice_(tiles(1), (None, None, 0))
    operation = cpasync.CopyBulkTensorTileG2SOp()
    from_a = cpasync.make_tiled_tma_atom(operation, a, box, (TILE, TILE))
    from_b = cpasync.make_tiled_tma_atom(operation, b, box, (TILE, TILE))
    product(*from_a, *from_b, out).launch(grid=(1, 1, 1), block=(128, 1, 1))


def main() -> None:
    """Multiply over k=320 and compare with torch."""
    a, b = (torch.randn(TILE, 5 * TILE, dtype=torch.float16).cuda() for _ in range(2))
    out = torch.zeros(TILE, TILE).cuda()
    launch(*(from_dlpack(x, assumed_align=16) for x in (a, b, out)))
    expected = a.float() @ b.float().T
    assert torch.allclose(out, expected, atol=2e-2), "the product is wrong"


if __name__ == "__main__":
    main()
