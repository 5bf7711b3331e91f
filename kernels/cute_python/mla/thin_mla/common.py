"""Slabs of fewer than 64 rows: the queries and the weights, which are columns of the products."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, warpgroup

from mla_var3.kernel.cute_python.kit.slabs import SLAB


def thin_layout(dtype, rows, slabs):
    """Shared memory of thin slabs, K-major, 128-byte swizzle: [rows, 64, slabs]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, dtype)
    return cute.tile_to_shape(atom, (rows, SLAB, slabs), order=(0, 1, 2))


def thin_slabs(memory, dtype, rows, slabs):
    """Shared memory as thin slabs: [rows, 64, slabs]."""
    layout = thin_layout(dtype, rows, slabs)
    return memory.get_tensor(layout.outer, swizzle=layout.inner)


def thin_parts(atom, shared, matrix, rows):
    """Thin slabs of ``shared`` and of ``matrix`` [rows, width, b] as operands of a TMA copy."""
    slabs = cute.local_tile(matrix, (rows, SLAB), (None, None, None))
    return cpasync.tma_partition(
        atom,
        0,
        cute.make_layout(1),
        cute.group_modes(shared, 0, 2),
        cute.group_modes(slabs, 0, 2),
    )
