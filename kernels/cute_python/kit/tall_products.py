"""Products of 128 rows in tensor memory: scores from shared slabs, outputs of weights and slabs.

A slab holds 64 keys of 64 columns. As keys its columns are what a product sums over; as values its
keys are: the same bytes, read the other way.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.utils import blackwell_helpers

from mla_var3.kernel.cute_python.kit.slabs import SLAB

#: Rows (head, query) of a CTA, and steps of 16 that a product of a slab takes.
TALL, STEPS = 128, SLAB // 16
#: What the products of one slab take and make: rows, keys or columns, and what is summed over.
TILE = (TALL, SLAB, SLAB)


def score_mma(dtype):
    """Scores [128, 64 keys] of queries and keys, both in shared memory."""
    return blackwell_helpers.make_trivial_tiled_mma(
        dtype, dtype, OperandMajorMode.K, OperandMajorMode.K, Float32, tcgen05.CtaGroup.ONE,
        TILE[:2],
    )  # fmt: skip


def value_mma(dtype):
    """Output [128, 64 columns] of weights in tensor memory and values in shared memory."""
    return blackwell_helpers.make_trivial_tiled_mma(
        dtype, dtype, OperandMajorMode.K, OperandMajorMode.MN, Float32, tcgen05.CtaGroup.ONE,
        TILE[:2], tcgen05.OperandSource.TMEM,
    )  # fmt: skip


def shared(memory, layout, dtype=None):
    """Shared memory under a swizzled layout, of another type than its own where one is named."""
    return memory.get_tensor(layout.outer, swizzle=layout.inner, dtype=dtype)


def query_operand(mma, memory, dtype, slabs):
    """Queries as the A operand: [., ., step, slab]."""
    layout = blackwell_helpers.make_smem_layout_a(mma, TILE, dtype, slabs)
    return mma.make_fragment_A(shared(memory, layout))


def slab_operand(mma, memory, dtype, slabs):
    """Slabs as the B operand, keys or values as ``mma`` takes them: [., ., step, slab]."""
    layout = blackwell_helpers.make_smem_layout_b(mma, TILE, dtype, slabs)
    return mma.make_fragment_B(shared(memory, layout))


def weight_operand(mma, base, first, dtype):
    """Weights as the A operand, two per column from ``first`` on: [., ., step]."""
    layout = blackwell_helpers.make_smem_layout_a(mma, TILE, dtype, 1)
    whole = mma.make_fragment_A(cute.make_tensor(base, layout.outer))
    return cute.make_tensor(
        cute.recast_ptr(base + first, dtype=dtype), whole[None, None, None, 0].layout
    )


def accumulator(mma, base, first):
    """[128, 64] of fp32 in the columns from ``first`` on."""
    shape = mma.partition_shape_C(TILE[:2])
    return cute.make_tensor(base + first, mma.make_fragment_C(shape).layout)


def slab_layout(dtype, rows, slabs):
    """Shared memory of slabs as TMA writes them: [rows, 64, slabs]."""
    return cute.tile_to_shape(_atom(dtype), (rows, SLAB, slabs), order=(0, 1, 2))


def box_layout(dtype, box):
    """Shared memory of a box of keys, [box, 64], as it lies in a slab."""
    rows = cute.make_layout((min(box, 8), SLAB), stride=(SLAB, 1))
    return cute.tile_to_shape(
        cute.make_composed_layout(_atom(dtype).inner, 0, rows), (box, SLAB), order=(0, 1)
    )


def _atom(dtype):
    return tcgen05.make_smem_layout_atom(tcgen05.SmemLayoutAtomKind.K_SW128, dtype)
