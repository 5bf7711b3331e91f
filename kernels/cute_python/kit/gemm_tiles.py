"""Helpers of Hopper GEMM: swizzled shared-memory layouts, TMA atoms, wgmma and the store of C."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.utils import hopper_helpers

#: A warpgroup accumulates 64x256 of C, which takes 128 registers of each of its threads.
GROUP_M, TILE_N = 64, 256
#: A step of the k loop: 128 bytes of a row, the width of the swizzle; four MMA instructions.
TILE_K, MMA_STEPS = 64, 4
#: C leaves in slabs of 64x64, two of them in flight per warpgroup.
SLAB, SLABS_IN_FLIGHT = 64, 2
ELEMENT_BYTES = 2


def tiled_mma(dtype, groups=1, columns=TILE_N):
    """C += A B^T of ``groups`` warpgroups below each other; both operands from shared memory."""
    k_major = warpgroup.OperandMajorMode.K
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, Float32, (groups, 1, 1), (GROUP_M, columns)
    )


def operand_layout(dtype, rows, count):
    """``count`` tiles of rows x 64, K-major, 128-byte swizzle: [rows, 64, count]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, dtype)
    return cute.tile_to_shape(atom, (rows, TILE_K, count), order=(0, 1, 2))


def shared_tiles(memory, dtype, rows, count):
    """Shared memory as tiles: [rows, 64, count]."""
    layout = operand_layout(dtype, rows, count)
    return memory.get_tensor(layout.outer, swizzle=layout.inner)


def tma_atom(operation, matrix, rows, **options):
    """TMA copies of rows x 64 boxes of ``matrix``, and the tensor of its coordinates."""
    box = cute.slice_(operand_layout(matrix.element_type, rows, 1), (None, None, 0))
    return cpasync.make_tiled_tma_atom(operation, matrix, box, (rows, TILE_K), **options)


def tma_parts(atom, tiles, matrix, rank=0, ranks=1):
    """Boxes of ``tiles`` [box, count] and of ``matrix`` [box, row tile, column tile]."""
    boxes = cute.local_tile(matrix, (cute.size(tiles, mode=[0]), TILE_K), (None, None))
    return cpasync.tma_partition(
        atom,
        rank,
        cute.make_layout(ranks),
        cute.group_modes(tiles, 0, 2),
        cute.group_modes(boxes, 0, 2),
    )


def in_flight(j, count):
    """Stores that may still read their slabs before the ``j``-th of ``count`` of a tile is written.

    After an odd number of slabs the next tile begins with the one that was sent last.
    """
    return 0 if j == 0 and count % SLABS_IN_FLIGHT else SLABS_IN_FLIGHT - 1


@cute.jit
def store_tile(acc, slabs, store_c, c, row, column, group, barrier):
    """Send a warpgroup's 64x256 of C off, slab by slab: stmatrix, then TMA, which clips the edges.

    Args:
        acc: Accumulators of the warpgroup.
        slabs: Shared memory, two slabs per warpgroup: [64, 64, 2 * groups].
        store_c: TMA atom of C.
        c: Its coordinates.
        row: Row tile of 64 in C.
        column: Column tile of 256 in C.
        group: Warpgroup.
        barrier: Named barrier of the warpgroup.
    """
    dtype = slabs.element_type
    thread = cute.arch.thread_idx()[0] % 128
    leader = cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0
    parts, out = tma_parts(store_c, slabs, c)
    stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
    copy = cute.make_tiled_copy_C(stmatrix, tiled_mma(dtype, 1, SLAB))
    mine = copy.get_slice(thread)
    rounded = cute.make_rmem_tensor(acc.layout, dtype)
    rounded.store(acc.load().to(dtype))
    # Slabs past n are not stored: along an extent of one slab, every slab's coordinate is 0.
    count = min(TILE_N // SLAB, cute.ceil_div(c.shape[1], SLAB))
    for j in range_constexpr(count):
        slab = group * SLABS_IN_FLIGHT + j % SLABS_IN_FLIGHT
        if leader:
            cute.arch.cp_async_bulk_wait_group(in_flight(j, count), read=True)
        cute.arch.barrier(barrier_id=barrier, number_of_threads=128)
        part = cute.make_tensor(
            rounded.iterator + j * 32, cute.make_layout(((2, 2, 8), 1, 1))
        )  # [64, 64]
        cute.copy(copy, mine.retile(part), mine.partition_D(slabs[None, None, slab]))
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=barrier, number_of_threads=128)
        if leader:
            cute.copy(store_c, parts[None, slab], out[None, row, column * 4 + j])
            cute.arch.cp_async_bulk_commit_group()
