"""Combine kernel of a shared prefix: latent output times Wv, merged with the prefix's partials.

A block keeps Wv of one head in shared memory. Each of its two warpgroups takes every other tile of
64 rows: eight slabs of the latent output are operand A, then two slabs of each partial result are
added with their weights. Both kinds pass through the warpgroup's own ring.
"""

from __future__ import annotations

from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.utils import SmemAllocator, hopper_helpers

from mla_var3.kernel.cute_python.kit.head_epilogue import EPILOGUE
from mla_var3.kernel.cute_python.kit.head_items import GROUPS
from mla_var3.kernel.cute_python.kit.head_kernel import CONSUMERS
from mla_var3.kernel.cute_python.kit.head_loads import WARPS
from mla_var3.kernel.cute_python.kit.head_plan import ELEMENT_BYTES, LN_2
from mla_var3.kernel.cute_python.kit.head_tiles import (
    ROWS,
    SLAB,
    by_group,
    key_parts,
    row_parts,
    score_mma,
    shared_slabs,
    sums_by_group,
    tma_keys,
    tma_rows,
    value_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import LOWEST

LATENT, WIDTH = 512, 128
#: Slabs of a latent row, and of a row of the output.
IN_SLABS, OUT_SLABS = LATENT // SLAB, WIDTH // SLAB
#: Places of a warpgroup's ring, a slab each.
STAGES = 4
#: The consumers, a warp that loads for each warpgroup, and one that loads Wv.
THREADS = CONSUMERS + 32 * (GROUPS + 1)


class Rows(NamedTuple):
    """A thread's two rows of a tile."""

    query: cute.Tensor
    member: cute.Tensor
    lse: cute.Tensor
    shares: cute.Tensor  # [2, parts]: what each part counts for, the latent one first


class Combine:
    """Combine kernel: host and device half.

    Args:
        tile_s: Queries of a row tile.
        own: Whether there is a latent part.
        partials: Partial results of the prefix.
        sms: Blocks to aim at.
    """

    def __init__(self, tile_s: int, own: bool, partials: int, sms: int):
        self.tile_s = tile_s
        self.own = own
        self.partials = partials
        self.sms = sms

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        o_own: cute.Tensor,
        lse_own: cute.Tensor,
        o_prefix: cute.Tensor,
        lse_prefix: cute.Tensor,
        wv: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        stream: cuda.CUstream,
    ):
        """Launch.

        Args:
            o_own: Latent part [b,h,s,512].
            lse_own: Its LSE [b,h,s].
            o_prefix: Partial results of the prefix [splits*b,h,s,128].
            lse_prefix: Their LSE [splits*b,h,s].
            wv: [h,512,128].
            o: Output [b,h,s,128].
            lse: LSE [b,h,s].
            stream: Where to launch.
        """
        dtype = self.dtype = o.element_type

        @cute.struct
        class Storage:
            full: cute.struct.MemRange[cutlass.Int64, GROUPS * STAGES]
            free: cute.struct.MemRange[cutlass.Int64, GROUPS * STAGES]
            wv_full: cute.struct.MemRange[cutlass.Int64, IN_SLABS]
            ring: cute.struct.Align[
                cute.struct.MemRange[dtype, GROUPS * STAGES * ROWS * SLAB], 1024
            ]
            out: cute.struct.Align[
                cute.struct.MemRange[dtype, GROUPS * OUT_SLABS * ROWS * SLAB], 1024
            ]
            wv: cute.struct.Align[cute.struct.MemRange[dtype, LATENT * WIDTH], 1024]

        self.storage = Storage
        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        # A part that is absent has a dummy of other extents, of which nothing is loaded.
        splits = Int32(max(self.partials, 1))
        own_load = tma_rows(load, by_group(o_own, Int32(1)), self.tile_s)
        prefix_load = tma_rows(load, by_group(o_prefix, splits), self.tile_s)
        heads, _, _ = wv.shape
        by_head = cute.make_layout(
            (LATENT, WIDTH, heads, 1), stride=(WIDTH, 1, LATENT * WIDTH, LATENT * WIDTH)
        )
        wv_load = tma_keys(cute.make_tensor(wv.iterator, by_head), SLAB)
        o_store = tma_rows(store, by_group(o, Int32(1)), self.tile_s)
        sums = (
            sums_by_group(lse_own, Int32(1)),
            sums_by_group(lse_prefix, splits),
            sums_by_group(lse, Int32(1)),
        )
        tiles = self.tiles(o_store[1])
        blocks = cutlass.min(cute.ceil_div(self.sms, heads), cute.ceil_div(tiles, GROUPS))
        self.combine(own_load, prefix_load, wv_load, o_store, sums).launch(
            grid=(heads, blocks, 1), block=(THREADS, 1, 1), stream=stream, min_blocks_per_mp=1
        )

    def tiles(self, o):
        """Row tiles of a head."""
        rows = cute.ceil_div(o.shape[1], ROWS // self.tile_s)
        return cute.ceil_div(o.shape[0], self.tile_s) * rows

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def combine(
        self, own_load: tuple, prefix_load: tuple, wv_load: tuple, o_store: tuple, sums: tuple
    ):
        """Grid (heads, blocks of a head)."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.init_barriers(storage, warp_index)
        if warp_index == WARPS + GROUPS:
            if const_expr(self.own):
                self.load_wv(storage, wv_load)
        elif warp_index >= WARPS:
            self.produce(storage, own_load, prefix_load, o_store[1], warp_index - WARPS)
        else:
            self.consume(storage, o_store, sums, warp_index // 4)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        if warp_index == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(GROUPS * STAGES):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, 1)
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, 4)  # warps
                for i in range_constexpr(IN_SLABS):
                    cute.arch.mbarrier_init(storage.wv_full.data_ptr() + i, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

    def walk(self, o, number):
        """A warpgroup's first row tile, one past the last, and the step."""
        first = cute.arch.block_idx()[1] * GROUPS + number
        return first, self.tiles(o), cute.arch.grid_dim()[1] * GROUPS

    def rows_of(self, o, tile):
        """Tile of queries and tile of members."""
        tiles = cute.ceil_div(o.shape[0], self.tile_s)
        return tile % tiles, tile // tiles

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def load_wv(self, storage, wv_load):
        """One warp: Wv of the head, slab by slab of the sum."""
        s_wv = shared_slabs(storage.wv, self.dtype, SLAB, IN_SLABS * OUT_SLABS)
        shared, source = key_parts(wv_load[0], s_wv, wv_load[1], SLAB)
        full, head = storage.wv_full.data_ptr(), cute.arch.block_idx()[0]
        for i in range_constexpr(IN_SLABS):
            self.expect(full + i, OUT_SLABS)
            for j in range_constexpr(OUT_SLABS):
                place = shared[None, i * OUT_SLABS + j]
                cute.copy(wv_load[0], source[None, i, j, head, 0], place, tma_bar_ptr=full + i)

    @cute.jit
    def produce(self, storage, own_load, prefix_load, o, number):
        """One warp: what its warpgroup reads, tile after tile."""
        slabs = shared_slabs(storage.ring, self.dtype, ROWS, GROUPS * STAGES)
        own = (own_load[0], *row_parts(own_load[0], slabs, own_load[1], self.tile_s))
        prefix = (prefix_load[0], *row_parts(prefix_load[0], slabs, prefix_load[1], self.tile_s))
        head, done = cute.arch.block_idx()[0], Int32(0)
        first, count, step = self.walk(o, number)
        for tile in cutlass.range(first, count, step, unroll=1):
            rows = self.rows_of(o, tile)
            if const_expr(self.own):
                for j in cutlass.range(IN_SLABS, unroll=1):
                    self.load(storage, own, (*rows, j, head, 0), number, done)
                    done = done + 1
            if const_expr(self.partials):
                for j in cutlass.range(self.partials * OUT_SLABS, unroll=1):
                    at = (*rows, j % OUT_SLABS, head, j // OUT_SLABS)
                    self.load(storage, prefix, at, number, done)
                    done = done + 1

    @cute.jit
    def load(self, storage, operands, at, number, done):
        """A slab of 64 rows to place ``done`` of a warpgroup's ring."""
        atom, shared, source = operands
        place = number * STAGES + done % STAGES
        full = storage.full.data_ptr() + place
        cute.arch.mbarrier_wait(storage.free.data_ptr() + place, (done // STAGES & 1) ^ 1)
        self.expect(full, 1)
        cute.copy(atom, source[(None, *at)], shared[None, place], tma_bar_ptr=full)

    @cute.jit
    def expect(self, barrier, slabs):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, slabs * ROWS * SLAB * ELEMENT_BYTES)

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, o_store, sums, number):
        """One warpgroup: every other row tile of the block."""
        acc = cute.make_rmem_tensor(cute.make_layout(((2, 2, WIDTH // 8), 1, 1)), Float32)
        done = Int32(0)
        first, count, step = self.walk(o_store[1], number)
        for tile in cutlass.range(first, count, step, unroll=1):
            tile_s, tile_m = self.rows_of(o_store[1], tile)
            rows = self.weigh(sums, tile_s, tile_m)
            acc.fill(0.0)
            if const_expr(self.own):
                self.project(acc, storage, number, done)
                for i in range_constexpr(cute.size(acc)):
                    acc[i] = acc[i] * rows.shares[i // 2 % 2, 0]
                done = done + IN_SLABS
            for part in range_constexpr(self.partials):
                self.add_partial(acc, storage, rows, part, number, done)
                done = done + OUT_SLABS
            self.store_lse(rows, sums[2])
            self.store(acc, storage, o_store, (tile_s, tile_m), number)
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def weigh(self, sums, tile_s, tile_m):
        """The thread's rows, and what each of their parts counts for."""
        lse, head, parts = sums[2], cute.arch.block_idx()[0], self.own + self.partials
        two = cute.make_layout(2)
        rows = Rows(
            query=cute.make_rmem_tensor(two, Int32),
            member=cute.make_rmem_tensor(two, Int32),
            lse=cute.make_rmem_tensor(two, Float32),
            shares=cute.make_rmem_tensor(cute.make_layout((2, parts)), Float32),
        )
        thread = cute.arch.thread_idx()[0] % 128
        for r in range_constexpr(2):
            row = thread // 32 * 16 + thread % 32 // 4 + 8 * r
            rows.query[r] = tile_s * self.tile_s + row % self.tile_s
            rows.member[r] = tile_m * (ROWS // self.tile_s) + row // self.tile_s
            # A row past the edge reads the last one, and is not stored.
            query = cutlass.min(rows.query[r], lse.shape[0] - 1)
            member = cutlass.min(rows.member[r], lse.shape[1] - 1)
            # All loads before the first use, so that one waits under the others.
            if const_expr(self.own):
                rows.shares[r, 0] = sums[0][query, member, head, 0]
            for part in range_constexpr(self.partials):
                rows.shares[r, self.own + part] = sums[1][query, member, head, part]
        for r in range_constexpr(2):
            self.share_out(rows, r, parts)
        return rows

    @cute.jit
    def share_out(self, rows, r: cutlass.Constexpr, parts: cutlass.Constexpr):
        """LSE of a row's parts to shares that add up to one, and their common LSE."""
        top = Float32(LOWEST)
        for part in range_constexpr(parts):
            top = cute.arch.fmax(top, rows.shares[r, part])
        total = Float32(0.0)
        for part in range_constexpr(parts):
            lag = (rows.shares[r, part] - top) * (1.0 / LN_2)
            rows.shares[r, part] = cute.math.exp2(lag, fastmath=True)
            total = total + rows.shares[r, part]
        inverse = Float32(0.0) if total == 0.0 else Float32(1.0) / total
        for part in range_constexpr(parts):
            rows.shares[r, part] = rows.shares[r, part] * inverse
        rows.lse[r] = top + cute.math.log2(total, fastmath=True) * LN_2

    @cute.jit
    def store_lse(self, rows, lse):
        """The LSE of all parts, by the first thread of each row."""
        for r in range_constexpr(2):
            query, member = rows.query[r], rows.member[r]
            there = (query < lse.shape[0]) & (member < lse.shape[1])
            if there & (cute.arch.thread_idx()[0] % 4 == 0):
                lse[query, member, cute.arch.block_idx()[0], 0] = rows.lse[r]

    @cute.jit
    def project(self, acc, storage, number, done):
        """Latent rows times Wv: a slab of the sum at a time."""
        thread = cute.arch.thread_idx()[0] % 128
        mma = project_mma(self.dtype)
        mine = mma.get_slice(thread)
        ring = shared_slabs(storage.ring, self.dtype, ROWS, GROUPS * STAGES)
        layout = value_layout(self.dtype, WIDTH, SLAB, IN_SLABS)
        s_wv = storage.wv.get_tensor(layout.outer, swizzle=layout.inner)
        a = mine.make_fragment_A(mine.partition_A(ring))
        b = mine.make_fragment_B(mine.partition_B(s_wv))
        mma.set(warpgroup.Field.ACCUMULATE, True)
        for j in range_constexpr(IN_SLABS):
            place = self.arrival(storage, number, done + j)
            cute.arch.mbarrier_wait(storage.wv_full.data_ptr() + j, 0)
            warpgroup.fence()
            for step in range_constexpr(SLAB // 16):
                cute.gemm(mma, acc, a[None, None, step, place], b[None, None, step, j], acc)
            warpgroup.commit_group()
            if const_expr(j > 0):
                warpgroup.wait_group(1)
                self.release(storage, number, done + j - 1)
        warpgroup.wait_group(0)
        self.release(storage, number, done + IN_SLABS - 1)

    @cute.jit
    def add_partial(self, acc, storage, rows, part: cutlass.Constexpr, number, done):
        """Add a partial result of the prefix with its share."""
        thread = cute.arch.thread_idx()[0] % 128
        slabs = shared_slabs(storage.ring, self.dtype, ROWS, GROUPS * STAGES)
        ldmatrix = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), self.dtype)
        copy = cute.make_tiled_copy_C(ldmatrix, score_mma(self.dtype, SLAB))
        mine = copy.get_slice(thread)
        shares = [rows.shares[r, self.own + part] for r in range(2)]
        for j in range_constexpr(OUT_SLABS):
            place = self.arrival(storage, number, done + j)
            slab = cute.make_rmem_tensor(cute.make_layout(((2, 2, 8), 1, 1)), self.dtype)
            cute.copy(copy, mine.partition_S(slabs[None, None, place]), mine.retile(slab))
            for i in range_constexpr(cute.size(slab)):
                acc[j * 32 + i] = acc[j * 32 + i] + slab[i].to(Float32) * shares[i // 2 % 2]
            self.release(storage, number, done + j)

    @cute.jit
    def arrival(self, storage, number, done):
        """Wait for place ``done`` of a warpgroup's ring, and give its slab."""
        place = number * STAGES + done % STAGES
        cute.arch.mbarrier_wait(storage.full.data_ptr() + place, done // STAGES & 1)
        return place

    @cute.jit
    def release(self, storage, number, done):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(storage.free.data_ptr() + (number * STAGES + done % STAGES))

    @cute.jit
    def store(self, acc, storage, o_store, rows, number):
        """Registers to shared memory, and on by TMA, which clips the edges."""
        slabs = shared_slabs(storage.out, self.dtype, ROWS, GROUPS * OUT_SLABS)
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), self.dtype)
        copy = cute.make_tiled_copy_C(stmatrix, score_mma(self.dtype, SLAB))
        mine = copy.get_slice(cute.arch.thread_idx()[0] % 128)
        rounded = cute.make_rmem_tensor(acc.layout, self.dtype)
        rounded.store(acc.load().to(self.dtype))
        leader = cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0
        if leader:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier(barrier_id=EPILOGUE + number, number_of_threads=128)
        for j in range_constexpr(OUT_SLABS):
            part = cute.make_tensor(rounded.iterator + j * 32, cute.make_layout(((2, 2, 8), 1, 1)))
            place = slabs[None, None, number * OUT_SLABS + j]
            cute.copy(copy, mine.retile(part), mine.partition_D(place))
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=EPILOGUE + number, number_of_threads=128)
        if leader:
            parts, out = row_parts(o_store[0], slabs, o_store[1], self.tile_s)
            for j in range_constexpr(OUT_SLABS):
                target = out[None, rows[0], rows[1], j, cute.arch.block_idx()[0], 0]
                cute.copy(o_store[0], parts[None, number * OUT_SLABS + j], target)
            cute.arch.cp_async_bulk_commit_group()


def project_mma(dtype):
    """Output [64, 128] of a warpgroup: latent rows K-major, Wv MN-major, both in shared memory."""
    k_major, mn_major = warpgroup.OperandMajorMode.K, warpgroup.OperandMajorMode.MN
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, mn_major, Float32, (1, 1, 1), (ROWS, WIDTH)
    )
