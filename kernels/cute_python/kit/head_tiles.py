"""Tiles of per-head attention: shared-memory layouts, TMA atoms and wgmma for Q, K, V and output.

A head's queries are rows. Where several sequences attend the same keys (members of a group), the
rows of all of them make common tiles: a tile of 64 rows is a rectangle of ``tile_s`` queries by
``64 / tile_s`` members, which TMA cuts out of the tensor as it lies. Plain attention is the case of
one member.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import hopper_helpers

#: Rows of a consumer warpgroup, and columns of a slab: 128 bytes, the width of the swizzle.
ROWS, SLAB = 64, 64
SMEM, RMEM = warpgroup.OperandSource.SMEM, warpgroup.OperandSource.RMEM


# ---- views of tensors ----------------------------------------------------------------------
def by_group(x, groups):
    """Queries or outputs [b, h, s, w] as [s, members, w, h, groups]; members are neighbors in b."""
    b, h, s, w = x.shape
    members = b // groups
    return cute.make_tensor(
        x.iterator,
        cute.make_layout(
            (s, members, w, h, groups), stride=(w, h * s * w, 1, s * w, members * h * s * w)
        ),
    )


def sums_by_group(x, groups):
    """[b, h, s] as [s, members, h, groups]."""
    b, h, s = x.shape
    members = b // groups
    return cute.make_tensor(
        x.iterator,
        cute.make_layout((s, members, h, groups), stride=(1, h * s, s, members * h * s)),
    )


def slab_layout(dtype, rows, count):
    """Shared memory of slabs ``rows`` x 64, 128-byte swizzle: [rows, 64, count]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, dtype)
    return cute.tile_to_shape(atom, (rows, SLAB, count), order=(0, 1, 2))


def shared_slabs(memory, dtype, rows, count):
    """Shared memory as slabs: [rows, 64, count]."""
    layout = slab_layout(dtype, rows, count)
    return memory.get_tensor(layout.outer, swizzle=layout.inner)


def rectangle(tile_s, count=1):
    """Slabs of 64 rows as rectangles: [tile_s, 64 / tile_s, 64, count]."""
    return cute.make_layout(
        (tile_s, ROWS // tile_s, SLAB, count), stride=(SLAB, SLAB * tile_s, 1, SLAB * ROWS)
    )


def value_layout(dtype, width, keys, stages):
    """Slabs of values as the B operand of the output: the same bytes, [width, keys, stages]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, dtype)
    return cute.tile_to_shape(atom, (width, keys, stages), order=(1, 0, 2))


def tma_rows(operation, x, tile_s):
    """TMA copies of rectangles of ``x`` [s, members, w, h, groups], and its coordinates."""
    box = rectangle(tile_s)
    swizzle = slab_layout(x.element_type, ROWS, 1).inner
    box = cute.make_composed_layout(swizzle, 0, cute.select(box, mode=[0, 1, 2]))
    return tuple(cpasync.make_tiled_tma_atom(operation, x, box, (tile_s, ROWS // tile_s, SLAB)))


def tma_keys(x, keys):
    """TMA loads of ``keys`` x 64 of ``x`` [t, w, h, groups], and its coordinates."""
    box = cute.slice_(slab_layout(x.element_type, keys, 1), (None, None, 0))
    load = cpasync.CopyBulkTensorTileG2SOp()
    return tuple(cpasync.make_tiled_tma_atom(load, x, box, (keys, SLAB)))


def row_parts(atom, slabs, x, tile_s):
    """Rectangles of ``slabs`` [64, 64, count] and of ``x``: operands of a TMA copy.

    The second is [box, tile of s, tile of members, slab, h, groups].
    """
    boxes = cute.make_tensor(slabs.iterator, rectangle(tile_s, cute.size(slabs, mode=[2])))
    return cpasync.tma_partition(
        atom,
        0,
        cute.make_layout(1),
        cute.group_modes(boxes, 0, 3),
        cute.group_modes(cute.local_tile(x, (tile_s, ROWS // tile_s, SLAB), (None,) * 5), 0, 3),
    )


def key_parts(atom, slabs, x, keys):
    """Boxes of ``slabs`` and of ``x`` [box, tile of t, slab, h, groups]: operands of a copy."""
    return cpasync.tma_partition(
        atom,
        0,
        cute.make_layout(1),
        cute.group_modes(slabs, 0, 2),
        cute.group_modes(cute.local_tile(x, (keys, SLAB), (None,) * 4), 0, 2),
    )


# ---- matrix products -----------------------------------------------------------------------
def score_mma(dtype, keys):
    """Scores [64, keys] of a warpgroup, both operands K-major in shared memory."""
    k_major = warpgroup.OperandMajorMode.K
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, Float32, (1, 1, 1), (ROWS, keys), SMEM
    )


def output_mma(dtype, width):
    """Output [64, width] of a warpgroup: weights from registers, values MN-major."""
    k_major, mn_major = warpgroup.OperandMajorMode.K, warpgroup.OperandMajorMode.MN
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, mn_major, Float32, (1, 1, 1), (ROWS, width), RMEM
    )


def operand_layout(keys):
    """Registers of [64, keys] as the A operand of its MMA steps; flat, it is the C layout."""
    return cute.make_layout(((2, 2, 2), 1, keys // 16), stride=((1, 2, 4), 0, 8))
