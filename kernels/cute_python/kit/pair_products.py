"""Operands of products that two CTAs make as one: 64 rows, and 64 keys or columns, of each.

Each CTA has its rows of the first operand and its half of the second one in its own shared memory,
at the same place. Its accumulators hold its 64 rows: columns of the first CTA's half in lanes 0 to
63, those of the second one's in lanes 64 to 127.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.utils import blackwell_helpers

from mla_var3.kernel.cute_python.kit.slabs import KEYS, ROWS, SLAB
from mla_var3.kernel.cute_python.kit.tall_products import shared

#: Rows of a pair, its keys or columns, and what a slab sums over.
PAIR_TILE = (2 * ROWS, 2 * KEYS, SLAB)


def pair_mma(dtype, values, tile=PAIR_TILE):
    """Scores of queries and keys, or outputs of weights and ``values``; all from shared memory."""
    major = OperandMajorMode.MN if values else OperandMajorMode.K
    return blackwell_helpers.make_trivial_tiled_mma(
        dtype, dtype, OperandMajorMode.K, major, Float32, tcgen05.CtaGroup.TWO, tile[:2]
    )


def row_operand(mma, memory, dtype, slabs, tile=PAIR_TILE):
    """Slabs of 64 rows as the A operand: [., ., step, slab]."""
    layout = blackwell_helpers.make_smem_layout_a(mma, tile, dtype, slabs)
    return mma.make_fragment_A(shared(memory, layout, dtype))


def half_operand(mma, memory, dtype, slabs, tile=PAIR_TILE):
    """Slabs of 64 keys or columns as this CTA's half of the B operand: [., ., step, slab]."""
    layout = blackwell_helpers.make_smem_layout_b(mma, tile, dtype, slabs)
    return mma.make_fragment_B(shared(memory, layout, dtype))


def pair_accumulator(mma, base, first, tile=PAIR_TILE):
    """This CTA's rows of [128, 128] of fp32, in 64 columns from ``first`` on."""
    shape = mma.partition_shape_C(tile[:2])
    return cute.make_tensor(base + first, mma.make_fragment_C(shape).layout)
