"""Output stores of latent attention: row sums, the LSE, and O by TMA or directly from registers."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, range_constexpr

from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS, Handover, sync
from mla_var3.kernel.cute_python.kit.products import SMEM, output_mma, score_mma
from mla_var3.kernel.cute_python.kit.slabs import HALF, ROWS, SLAB, SLABS, shared_slabs, tma_parts
from mla_var3.kernel.cute_python.kit.softmax import LN_2


@cute.jit
def complete_sums(wg, side: cutlass.Constexpr):
    """Row sums over all columns of a tile, and over the tiles of both sides."""
    for r in range_constexpr(2):
        total = wg.row_sum[r]
        total = total + cute.arch.shuffle_sync_bfly(total, 1)
        wg.row_sum[r] = total + cute.arch.shuffle_sync_bfly(total, 2)
        if wg.lane % 4 == 0:
            wg.sums[side, wg.row + 8 * r] = wg.row_sum[r]
    sync(Handover.SUMS)
    for r in range_constexpr(2):
        wg.row_sum[r] = wg.row_sum[r] + wg.sums[1 - side, wg.row + 8 * r]


@cute.jit
def inverse_sum(wg, r: cutlass.Constexpr):
    """1 / row sum, and 0 for a row that sees no key."""
    return Float32(0.0) if wg.row_sum[r] == 0.0 else Float32(1.0) / wg.row_sum[r]


@cute.jit
def store_lse(wg, lse, block, batch):
    """The natural logarithm of the sum of exponentials: of no key, minus infinity."""
    for r in range_constexpr(2):
        row = block * ROWS + wg.row + 8 * r
        if (row < lse.shape[0]) & (wg.lane % 4 == 0):
            value = wg.row_max[r] + cute.math.log2(wg.row_sum[r], fastmath=True)
            lse[row, batch] = value * LN_2


@cute.jit
def store_partial(wg, o, block, batch, side: cutlass.Constexpr):
    """Store fp32 as the fragments lie: eight bytes per thread, whole sectors per quad."""
    tile = cute.local_tile(o[None, None, batch], (ROWS, HALF), (block, side))
    thread = output_mma(wg.weights.element_type, SMEM).get_slice(cute.arch.thread_idx()[0] % 128)
    target = thread.partition_C(tile)  # ((2, 2, 32), 1, 1): columns, rows, column groups
    for r in range_constexpr(2):
        if block * ROWS + wg.row + 8 * r < o.shape[0]:
            cute.autovec_copy(wg.out[(None, r, None), 0, 0], target[(None, r, None), 0, 0])


@cute.jit
def store_partial_slab(wg, o, block, batch, side: cutlass.Constexpr, j: cutlass.Constexpr):
    """Store 64 columns of fp32 as the fragments lie: whole sectors per quad."""
    tile = cute.local_tile(o[None, None, batch], (ROWS, SLAB), (block, 4 * side + j))
    thread = score_mma(wg.weights.element_type, SMEM).get_slice(cute.arch.thread_idx()[0] % 128)
    target = thread.partition_C(tile)  # ((2, 2, 8), 1, 1): columns, rows, column groups
    values = cute.make_tensor(wg.out.iterator + 32 * j, wg.score.layout)
    for r in range_constexpr(2):
        if block * ROWS + wg.row + 8 * r < o.shape[0]:
            cute.autovec_copy(values[(None, r, None), 0, 0], target[(None, r, None), 0, 0])


@cute.jit
def store_fragments(wg, o, block, batch, side: cutlass.Constexpr):
    """Divide by the row sums and store as the fragments lie: four bytes per thread at a time."""
    tile = cute.local_tile(o[None, None, batch], (ROWS, HALF), (block, side))
    dtype = wg.weights.element_type
    thread = output_mma(dtype, SMEM).get_slice(cute.arch.thread_idx()[0] % 128)
    target = thread.partition_C(tile)  # ((2, 2, 32), 1, 1): columns, rows, column groups
    for r in range_constexpr(2):
        inverse = inverse_sum(wg, r)
        rounded = cute.make_rmem_tensor((2, 32), dtype)
        for i in range_constexpr(cute.size(rounded)):
            rounded[i] = (wg.out[i // 2 * 4 + 2 * r + i % 2] * inverse).to(dtype)
        if block * ROWS + wg.row + 8 * r < o.shape[0]:
            cute.autovec_copy(rounded, target[(None, r, None), 0, 0])


@cute.jit
def send_output(wg, storage, store_o, o, block, batch, side: cutlass.Constexpr):
    """Registers to own slabs, and on by TMA."""
    slabs, first = shared_slabs(storage.kv, wg.weights.element_type, 2 * SLABS), SLABS + 4 * side
    rounded = cute.make_rmem_tensor(wg.out.layout, wg.weights.element_type)
    rounded.store(wg.out.load().to(wg.weights.element_type))
    for j in range_constexpr(4):
        part = cute.make_tensor(rounded.iterator + 32 * j, wg.score.layout)  # [64, 64]
        target = wg.store_thread.partition_D(slabs[None, None, first + j])
        cute.copy(wg.store, wg.store_thread.retile(part), target)
    cute.arch.fence_proxy("async.shared", space="cta")
    written = Handover.LEFT_OUTPUT + side
    cute.arch.barrier(barrier_id=written, number_of_threads=CONSUMERS // 2)
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
        shared, out = tma_parts(store_o, slabs, o)
        for j in range_constexpr(4):
            cute.copy(store_o, shared[None, first + j], out[None, block, 4 * side + j, batch])
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def send_slab(wg, storage, store_o, o, block, batch, side: cutlass.Constexpr, j: cutlass.Constexpr):
    """Registers to an own slab, and on by TMA."""
    slabs, into = shared_slabs(storage.kv, wg.weights.element_type, 2 * SLABS), SLABS + 4 * side + j
    values = cute.make_tensor(wg.out.iterator + 32 * j, wg.score.layout)  # [64, 64]
    rounded = cute.make_rmem_tensor(wg.score.layout, wg.weights.element_type)
    rounded.store(values.load().to(wg.weights.element_type))
    target = wg.store_thread.partition_D(slabs[None, None, into])
    cute.copy(wg.store, wg.store_thread.retile(rounded), target)
    cute.arch.fence_proxy("async.shared", space="cta")
    written = Handover.LEFT_OUTPUT + side
    cute.arch.barrier(barrier_id=written, number_of_threads=CONSUMERS // 2)
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
        shared, out = tma_parts(store_o, slabs, o)
        cute.copy(store_o, shared[None, into], out[None, block, 4 * side + j, batch])
        cute.arch.cp_async_bulk_commit_group()
