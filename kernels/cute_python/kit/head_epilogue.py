"""Epilogue of per-head attention: division by the row sums, the LSE, and the store by TMA."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32, range_constexpr
from cutlass.cute.nvgpu import warp

from mla_var3.kernel.cute_python.kit.head_items import GROUPS, HeadItems
from mla_var3.kernel.cute_python.kit.head_plan import LN_2
from mla_var3.kernel.cute_python.kit.head_tiles import (
    ROWS,
    SLAB,
    row_parts,
    score_mma,
    shared_slabs,
)

#: Named barrier of the first consumer warpgroup (0 is the CTA's own); the next is the other's.
EPILOGUE = 1


class HeadEpilogue(HeadItems):
    """What a warpgroup does with its sums and its output."""

    @cute.jit
    def finish(self, wg, storage, work, item, o_store, lse):
        """Divide by the row sums, store output and LSE, and give the queries' place back."""
        tile_s, tile_m = self.rows_of(work, item, wg.number)
        output = self.output_of(work, item, wg.number)
        for r in range_constexpr(2):
            total = wg.row_sum[r]
            total = total + cute.arch.shuffle_sync_bfly(total, 1)
            total = total + cute.arch.shuffle_sync_bfly(total, 2)
            wg.row_sum[r] = total
            wg.shrink[r] = Float32(0.0) if total == 0.0 else Float32(1.0) / total
        self.rescale(wg)
        self.store_lse(wg, work, lse[None, None, item.head, output], tile_s, tile_m)
        self.store_output(wg, storage, o_store, (tile_s, tile_m), item.head, output)

    @cute.jit
    def store_lse(self, wg, work, lse, tile_s, tile_m):
        """The natural logarithm of the sum of exponentials: of no key, minus infinity."""
        width = self.shape.tile_s
        for r in range_constexpr(2):
            row = wg.row + 8 * r
            query, member = tile_s * width + row % width, tile_m * (ROWS // width) + row // width
            if (query < work.queries) & (member < work.members) & (wg.lane % 4 == 0):
                value = wg.row_max[r] + cute.math.log2(wg.row_sum[r], fastmath=True)
                lse[query, member] = value * LN_2

    @cute.jit
    def store_output(self, wg, storage, o_store, rows, head, output):
        """Registers to the place of the own queries, and on by TMA, which clips the edges."""
        shape, number = self.shape, wg.number
        slabs = shared_slabs(storage.q, self.dtype, ROWS, GROUPS * shape.q_slabs)
        first = number * shape.q_slabs
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), self.dtype)
        copy = cute.make_tiled_copy_C(stmatrix, score_mma(self.dtype, SLAB))
        mine = copy.get_slice(cute.arch.thread_idx()[0] % 128)
        rounded = cute.make_rmem_tensor(wg.out.layout, self.dtype)
        rounded.store(wg.out.load().to(self.dtype))
        cute.arch.barrier(barrier_id=EPILOGUE + number, number_of_threads=128)
        for j in range_constexpr(shape.v_slabs):
            part = cute.make_tensor(rounded.iterator + j * 32, cute.make_layout(((2, 2, 8), 1, 1)))
            cute.copy(copy, mine.retile(part), mine.partition_D(slabs[None, None, first + j]))
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=EPILOGUE + number, number_of_threads=128)
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
            parts, out = row_parts(o_store[0], slabs, o_store[1], shape.tile_s)
            for j in range_constexpr(shape.v_slabs):
                target = out[None, rows[0], rows[1], j, head, output]
                cute.copy(o_store[0], parts[None, first + j], target)
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(storage.q_free.data_ptr() + number)
