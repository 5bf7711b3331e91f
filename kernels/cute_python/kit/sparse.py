"""Kernel of sparse latent attention: gathers listed tokens of an fp8 cache, multiplies in fp16.

A query token attends to the tokens that its list names. A row of the cache is 512 values in e4m3,
a scale in fp32 for every 128 of them, and 64 rotary values in bf16. Every e4m3 value is exact in
fp16, and so is its product with a scale that is a power of two: values are converted two at a time
and multiplied by their scale two at a time, and never pass through fp32. So queries are in fp16 as
well, converted where they lie.

The four producer warps gather: a warp reads a row of 512 bytes at once, converts it in registers
and writes it to the slabs. Places of a tile that no token fills are zeros, and their weights are 0.
"""

from __future__ import annotations

from collections import namedtuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float8E4M3FN, Float16, Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.epilogue import Epilogue
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS, Handover, sync
from mla_var3.kernel.cute_python.kit.paged import PagedKernel
from mla_var3.kernel.cute_python.kit.pages import as_token_rows
from mla_var3.kernel.cute_python.kit.rings import Free, latent_storage
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    LATENT,
    ROPE,
    ROPE_SLAB,
    SLAB,
    SLABS,
    SlabLoads,
    shared_slabs,
    slab_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import LOWEST
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS, Warpgroup, views

#: Values that share a scale; places of scales and rotary values in a row of bytes, and its length.
GROUP = 128
SCALES, ROPE_BYTES = LATENT, LATENT + 4 * (LATENT // GROUP)
ROW_BYTES = ROPE_BYTES + 2 * ROPE
#: Producer warps, tokens of a tile that each converts, and of those how many at a time.
WARPS, TOKENS, FLIGHT = 4, KEYS // 4, 4
#: All of a warp's tokens are there.
ALL = (1 << TOKENS) - 1

#: A consumer warpgroup that knows which places of a tile a token fills: [2, 4] words of 16 bits.
SparseWarpgroup = namedtuple("SparseWarpgroup", [*Warpgroup._fields, "filled"])


class SparseEpilogue(Epilogue):
    """Shared memory beside the slabs: which places of both tiles are filled."""

    def fields(self):
        """Further fields of shared memory, before the slabs."""
        return {"filled": cute.struct.MemRange[Int32, 2 * WARPS]}


class SparseKernel(PagedKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    #: Of a consumer and of a producer thread, which holds four rows in flight.
    registers = (224, 56)

    def __init__(self, lazy):
        super().__init__(lazy, 1, KEYS)
        self.hide, self.epilogue = hide_unfilled, SparseEpilogue(1)

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        cache: cute.Tensor,
        indices: cute.Tensor,
        lengths: cute.Tensor,
        cuts: cute.Tensor,
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        lse_unit: Float32,
        lse_empty: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [n,1,h,512], qpe [n,1,h,64], cache [pages,page,656], indices [n,k]."""
        self.dtype, self.out_dtype = Float16, o.element_type
        self.storage = latent_storage(
            Float16, self.queries.barriers, self.rings, self.epilogue.fields()
        )
        slab = cute.slice_(slab_layout(q.element_type, 1), (None, None, 0))
        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_token_rows(x), slab, (SLAB, SLAB))
            for x in (q, qpe)
        ]
        store_o = cpasync.make_tiled_tma_atom(store, as_token_rows(o), slab, (SLAB, SLAB))
        outputs = (*store_o, lse, lse_unit, lse_empty)
        where, slots = (indices, lengths, cuts), (partial, partial_lse)
        loads = (*load_q, *load_qpe)
        self.sparse_attention(loads, cache, where, slots, outputs, scale_log2).launch(
            **self.schedule.launch(q, cuts),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def sparse_attention(
        self,
        q_loads: tuple,
        cache: cute.Tensor,
        where: tuple,
        slots: tuple,
        outputs: tuple,
        scale_log2: Float32,
    ):
        """Grid as the schedule says."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.fetch_descriptors(warp_index, (*q_loads[::2], outputs[0]))
        self.init_barriers(storage, warp_index)
        work = self.schedule.work(where, outputs[2], Int32(0))
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(self.registers[1])
            self.gather_all(storage, q_loads, cache, work, warp_index)
        else:
            cute.arch.setmaxregister_increase(self.registers[0])
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, slots, side)
        self.end()

    @cute.jit
    def init_barriers(self, storage, warp_index):
        """All barriers; at those of the slabs each producer warp arrives."""
        if warp_index == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(SLABS):
                    cute.arch.mbarrier_init(storage.q_full.data_ptr() + i, 1)
                for i in range_constexpr(2 * SLABS):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, WARPS)
                for i in range_constexpr(self.rings):
                    readers = {Free.Q: 8}.get(i, 4)  # warps
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, readers)
        cute.arch.mbarrier_init_fence()
        self.after_barriers()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def gather_all(self, storage, q_loads, cache, work, warp_index):
        """All producer warps, each as a code of its own."""
        for group in range_constexpr(WARPS):
            if warp_index == CONSUMERS // 32 + group:
                self.gather(storage, q_loads, cache, work, group)

    @cute.jit
    def gather(self, storage, q_tensors, cache, work, group: cutlass.Constexpr):
        """One warp: a quarter of the tokens of each tile."""
        s_q = cute.recast_tensor(shared_slabs(storage.q, Float16, SLABS), BFloat16)
        q_loads, lane = SlabLoads(*q_tensors, s_q), cute.arch.lane_idx()
        free, full = storage.free.data_ptr(), storage.full.data_ptr()
        taken, evens, odds = Int32(0), Int32(0), Int32(0)  # sequences and tiles before this one
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, group)
            token = self.token(work, cache, sequence, length, self.place(start, group))
            for tile in cutlass.range(start, stop, unroll=1):
                odd = (tile - start) & 1
                before = odds if odd == 1 else evens
                phase = ((before + (tile - start) // 2) & 1) ^ 1
                self.convert(storage, cache, token, odd, phase, free, group)
                token = self.token(work, cache, sequence, length, self.place(tile + 1, group))
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.sync_warp()
                if lane < SLABS:
                    cute.arch.mbarrier_arrive(full + odd * SLABS + lane)
            taken = taken + 1
            evens, odds = evens + (stop - start + 1) // 2, odds + (stop - start) // 2

    def place(self, tile, group):
        """Where in its list a lane looks."""
        return tile * KEYS + group * TOKENS + cute.arch.lane_idx() % TOKENS

    @cute.jit
    def token(self, work, cache, sequence, length, place):
        """The token that a lane of the first 16 looks up for its warp; -1 where there is none."""
        at = cutlass.min(place, work.table.shape[1] - 1)
        found = work.table[sequence, at]
        here = (place < cutlass.min(length, work.table.shape[1])) & (found >= 0)
        here = here & (found < cache.shape[0] * cache.shape[1])
        return found if here else Int32(-1)

    @cute.jit
    def convert(self, storage, cache, token, odd, phase, free, group: cutlass.Constexpr):
        """A warp's tokens of a tile, from the cache to the slabs."""
        lane = cute.arch.lane_idx()
        slabs = shared_slabs(storage.kv, Float16, 2 * SLABS)
        raw = cute.make_rmem_tensor(cute.make_layout((16, FLIGHT)), cache.element_type)
        scale = cute.make_rmem_tensor(FLIGHT, Float16)
        for flight in range_constexpr(TOKENS // FLIGHT):
            for i in range_constexpr(FLIGHT):
                which = cute.arch.shuffle_sync(token, flight * FLIGHT + i)
                self.fetch(cache, which, lane, raw[None, i], scale, i)
            if const_expr(flight == 0):
                for ring in range_constexpr(2):
                    cute.arch.mbarrier_wait(free + 2 * odd + ring, phase)
                cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + odd, phase)
                self.mark(storage, token, odd, group, lane)
            for i in range_constexpr(FLIGHT):
                row = group * TOKENS + flight * FLIGHT + i
                self.put_latent(slabs, raw[None, i], scale[i], row, odd, lane)
        self.put_rope(slabs, cache, token, odd, group, lane)

    @cute.jit
    def mark(self, storage, token, odd, group: cutlass.Constexpr, lane):
        """Say which of this warp's places a token fills."""
        filled = cute.arch.vote_ballot_sync(token >= 0) & ALL
        if lane == 0:
            words = storage.filled.get_tensor(cute.make_layout((2, WARPS), stride=(WARPS, 1)))
            words[odd, group] = filled

    @cute.jit
    def fetch(self, cache, token, lane, into, scales, i: cutlass.Constexpr):
        """Sixteen values of a token and their scale; zeros where there is none."""
        page = cache.shape[1]
        place = cutlass.max(token, 0)
        row = cache[place // page, place % page, None]
        cute.autovec_copy(cute.local_tile(row, (16,), (lane,)), into)
        numbers = cute.make_tensor(
            cute.recast_ptr(row.iterator, dtype=Float32), cute.make_layout(ROW_BYTES // 4)
        )
        scale = numbers[SCALES // 4 + lane // (GROUP // 16)]
        words = cute.recast_tensor(into, Int32)
        for j in range_constexpr(4):
            words[j] = words[j] if token >= 0 else Int32(0)
        scales[i] = (scale if token >= 0 else Float32(0.0)).to(Float16)

    @cute.jit
    def put_latent(self, slabs, raw, scale, row, odd, lane):
        """Sixteen values to their slab; odd slabs begin with the second half, to spread banks."""
        exact = cute.recast_tensor(raw, Float8E4M3FN).load().to(Float16)
        values = cute.make_rmem_tensor(16, Float16)
        values.store(exact * scale)
        tile = slabs[row, None, odd * SLABS + lane // 4]
        for half in range_constexpr(2):
            turn = (half + lane // 4) & 1
            part = cute.make_rmem_tensor(8, Float16)
            for j in range_constexpr(8):
                part[j] = values[8 + j] if turn == 1 else values[j]
            cute.autovec_copy(part, cute.local_tile(tile, (8,), (2 * (lane % 4) + turn,)))

    @cute.jit
    def put_rope(self, slabs, cache, token, odd, group: cutlass.Constexpr, lane):
        """Rotary values of a warp's tokens, four of them at a time."""
        page = cache.shape[1]
        for i in range_constexpr(TOKENS // 4):
            which = cute.arch.shuffle_sync(token, 4 * i + lane // 8)
            place = cutlass.max(which, 0)
            row = cache[place // page, place % page, None]
            raw = cute.make_rmem_tensor(16, cache.element_type)
            cute.autovec_copy(cute.local_tile(row, (16,), (ROPE_BYTES // 16 + lane % 8,)), raw)
            words = cute.recast_tensor(raw, Int32)
            for j in range_constexpr(4):
                words[j] = words[j] if which >= 0 else Int32(0)
            values = cute.make_rmem_tensor(8, Float16)
            values.store(cute.recast_tensor(raw, BFloat16).load().to(Float32).to(Float16))
            tile = slabs[group * TOKENS + 4 * i + lane // 8, None, odd * SLABS + ROPE_SLAB]
            cute.autovec_copy(values, cute.local_tile(tile, (8,), (lane % 8,)))

    # ---- consumer warpgroups ---------------------------------------------------------------
    def views(self, storage, scale_log2, side):
        """Views of one side, with what is filled."""
        wg = views(storage, self.dtype, scale_log2, side)
        wg = wg._replace(limit=cute.make_rmem_tensor(cute.make_layout(4), Int32))
        words = storage.filled.get_tensor(cute.make_layout((2, WARPS), stride=(WARPS, 1)))
        return SparseWarpgroup(*wg, filled=words)

    @cute.jit
    def begin(self, wg, storage, work, length, first_key, phase):
        """Empty sums, and queries in fp16, their rope slab in registers."""
        wg.out.fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        wg.limit.fill(-KEYS)  # each tile may have places that no token fills
        for slab in range_constexpr(SLABS):
            cute.arch.mbarrier_wait(storage.q_full.data_ptr() + slab, phase)
        flat = cute.make_tensor(storage.q.data_ptr(), cute.make_layout(SLABS * SLAB * SLAB))
        for i in range_constexpr(SLABS * SLAB * SLAB // 8 // CONSUMERS):
            part = cute.local_tile(flat, (8,), (i * CONSUMERS + cute.arch.thread_idx()[0],))
            values = cute.make_rmem_tensor(8, Float16)
            cute.autovec_copy(part, values)
            values.store(cute.recast_tensor(values, BFloat16).load().to(Float32).to(Float16))
            cute.autovec_copy(values, part)
        cute.arch.fence_proxy("async.shared", space="cta")
        sync(Handover.FIRST_PIECE)
        self.take_rope(wg, storage)

    def first_queries(self, storage, phase):
        """What the first scores wait for: nothing more."""
        return None


@cute.jit
def hide_unfilled(wg, tile):
    """Hide the places of a tile that no token fills."""
    odd = tile & 1
    words = [wg.filled[odd, i] for i in range(WARPS)]
    if (words[0] & words[1] & words[2] & words[3]) != ALL:
        for i in range_constexpr(cute.size(wg.score)):
            column = 8 * (i // 4) + 2 * (wg.lane % 4) + i % 2
            filled = (words[i // 8] >> (column % TOKENS)) & 1
            wg.score[i] = wg.score[i] if filled == 1 else -Float32.inf
