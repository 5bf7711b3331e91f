"""Q tiles of few-row attention: 8 to 32 rows as MMA columns, their layouts and TMA operands.

With few heads the 64 rows of a matrix instruction are mostly padding if they are queries. Here they
are keys, of which there are always enough, and the queries are its columns, of which 8 suffice.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, warpgroup

from mla_var3.kernel.cute_python.kit.slabs import ROPE_SLAB, SLAB

#: Consumer warpgroups, each with whole tiles of keys and a whole output of its own.
GROUPS = 2
CONSUMERS = 128 * GROUPS
#: An output of 32 columns needs more registers than a launch gives; they move by warpgroups.
WIDE, CONSUMER_REGISTERS, PRODUCER_REGISTERS = 32, 240, 24
#: Named barriers: one per warpgroup, then one of both (0 is the CTA's own).
OWN, BOTH = 1, 1 + GROUPS
#: Blocks of 64 latent dimensions, which are the rows of the output's products.
BLOCKS = ROPE_SLAB
#: The order in which slabs of a tile land: rope first, since the scores alone need it.
ORDER = (ROPE_SLAB, *range(ROPE_SLAB))
#: Columns of a product: rows (head, query) of a CTA, padded.
COLUMNS = (8, 16, 32)
#: Columns of a unit: what a warpgroup finishes of a block of the output, four values per thread.
UNIT = 8


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
