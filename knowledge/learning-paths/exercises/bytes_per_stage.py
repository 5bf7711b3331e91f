"""Bytes that one barrier of fp16_gemm_0 waits for: its own layouts, built here, and measured."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as blackwell
from cutlass.cute.nvgpu import tcgen05

TILE, STAGES = (128, 256, 64), 4


@cute.jit
def measure():
    k_major = tcgen05.OperandMajorMode.K
    mma = cute.make_tiled_mma(
        tcgen05.MmaF16BF16Op(
            cutlass.Float16, cutlass.Float32, (128, 256, 16), tcgen05.CtaGroup.ONE,
            tcgen05.OperandSource.SMEM, k_major, k_major,
        )
    )  # fmt: skip
    a = blackwell.make_smem_layout_a(mma, TILE, cutlass.Float16, STAGES)
    b = blackwell.make_smem_layout_b(mma, TILE, cutlass.Float16, STAGES)
    one = [cute.select(layout, mode=[0, 1, 2]) for layout in (a, b)]
    print(sum(cute.size_in_bytes(cutlass.Float16, layout) for layout in one))


measure()
