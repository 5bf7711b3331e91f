"""Kernel of sparse latent attention whose producers alternate, and whose CTAs convert for another.

Two producer warps fill the even tiles and two the odd ones, so that bytes of one are under way
while the other's are converted. CTAs of a cluster have neighboring row tiles and the same list:
each fetches and converts its share of a tile's tokens, and writes them to all of them. Parts of
lists are merged by the workers that end with them.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import (
    BFloat16,
    Float8E4M3FN,
    Float16,
    Float32,
    Int32,
    Uint8,
    const_expr,
    range_constexpr,
)
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.dsmem import remote_address, store_remote
from mla_var3.kernel.cute_python.kit.gather import (
    GROUPS,
    PIECE,
    GatherKernel,
)
from mla_var3.kernel.cute_python.kit.halved import HalvedKernel
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.pages import as_token_rows
from mla_var3.kernel.cute_python.kit.rings import Free, latent_storage, readers
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    ROPE_SLAB,
    SLAB,
    SLABS,
    SlabLoads,
    shared_slabs,
    slab_layout,
)
from mla_var3.kernel.cute_python.kit.sparse import (
    TOKENS,
    WARPS,
    SparseEpilogue,
    hide_unfilled,
)
from mla_var3.kernel.cute_python.kit.staged import StagedEpilogue
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS


class AlternateEpilogue(StagedEpilogue):
    """Shared memory beside the slabs: the barrier of the merge, and which places are filled."""

    def fields(self):
        """Further fields of shared memory, before the slabs."""
        return {**super().fields(), **SparseEpilogue(1).fields()}


class AlternateKernel(GatherKernel, HalvedKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    def __init__(self, lazy, share):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            share: CTAs of a cluster, which hold neighboring row tiles and convert for each other.
        """
        HalvedKernel.__init__(self, lazy, share, KEYS)
        self.hide, self.epilogue = hide_unfilled, AlternateEpilogue(1)
        #: Quarters of a tile that a warp converts.
        self.quarters = WARPS // (2 * share)

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
        places: cute.Tensor,
        signals: cute.Tensor,
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
        where, slots = (indices, lengths, cuts), (places, signals, o)
        loads = (*load_q, *load_qpe)
        self.sparse_attention(loads, cache, where, slots, outputs, scale_log2).launch(
            **self.schedule.launch(q, cuts),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            cooperative=True,  # all CTAs run at once, as they must where three share a list
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
            self.gather(storage, q_loads, cache, work, warp_index - CONSUMERS // 32)
        else:
            cute.arch.setmaxregister_increase(self.registers[0])
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, slots, side)
            self.consumed(storage, work, outputs, slots)
        self.end()

    @cute.jit
    def init_barriers(self, storage, warp_index):
        """All barriers; at those of a slab the two warps of each CTA that fill it arrive."""
        if warp_index == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(SLABS):
                    cute.arch.mbarrier_init(storage.q_full.data_ptr() + i, 1)
                for i in range_constexpr(2 * SLABS):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, 2 * self.share)
                for i in range_constexpr(self.rings):
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, readers(i, self.share))
                self.epilogue.init(storage)
        cute.arch.mbarrier_init_fence()
        self.after_barriers()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def gather(self, storage, q_tensors, cache, work, group):
        """One warp: its tokens of the even tiles or of the odd ones."""
        s_q = cute.recast_tensor(shared_slabs(storage.q, Float16, SLABS), BFloat16)
        q_loads = SlabLoads(*q_tensors, s_q)
        free, odd = storage.free.data_ptr(), group // 2
        first = (self.schedule.rank() * 2 + group % 2) * self.quarters
        taken, done = Int32(0), Int32(0)  # sequences, and tiles of this parity, before this one
        tokens = cute.make_rmem_tensor(self.quarters, Int32)
        following = cute.make_rmem_tensor(self.quarters, Int32)
        scales = cute.make_rmem_tensor((GROUPS, self.quarters), Float32)
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            for warp in range_constexpr(WARPS):
                if group == warp:
                    self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, warp)
            count = (stop - start + 1 - odd) // 2
            self.list_tokens(tokens, work, cache, sequence, length, start + odd, first)
            for i in cutlass.range(count, unroll=1):
                tile, phase = start + 2 * i + odd, ((done + i) & 1) ^ 1
                cute.arch.mbarrier_wait(free + 3 * odd, phase)  # what is let go of first
                cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + odd, phase)
                self.fetch_quarters(storage, cache, tokens, scales, odd, first)
                self.list_tokens(following, work, cache, sequence, length, tile + 2, first)
                cute.arch.mbarrier_wait(free + 1 + odd, phase)
                self.mark_quarters(storage, tokens, odd, first)
                cute.arch.cp_async_wait_group(0)
                cute.arch.sync_warp()
                self.convert_quarters(storage, tokens, scales, odd, first)
                for n in range_constexpr(self.quarters):
                    tokens[n] = following[n]
            taken, done = taken + 1, done + count

    @cute.jit
    def list_tokens(self, tokens, work, cache, sequence, length, tile, first):
        """The tokens of this warp's quarters of a tile."""
        for n in range_constexpr(self.quarters):
            tokens[n] = self.token(work, cache, sequence, length, self.place(tile, first + n))

    @cute.jit
    def fetch_quarters(self, storage, cache, tokens, scales, odd, first):
        """Send for the bytes of this warp's tokens."""
        for n in range_constexpr(self.quarters):
            found = self.fetch_tokens(storage, cache, tokens[n], odd, first + n)
            for j in range_constexpr(GROUPS):
                scales[j, n] = found[j]

    @cute.jit
    def mark_quarters(self, storage, tokens, odd, first):
        """Say in all CTAs of the cluster which places these tokens fill."""
        words = storage.filled.data_ptr()
        for n in range_constexpr(self.quarters):
            filled = cute.arch.vote_ballot_sync(tokens[n] >= 0) & ((1 << TOKENS) - 1)
            if cute.arch.lane_idx() == 0:
                at = words + odd * WARPS + first + n
                cute.make_tensor(at, cute.make_layout(1))[0] = filled
                if const_expr(self.share > 1):
                    one = cute.make_rmem_tensor(1, Int32)
                    one[0] = filled
                    bits = cute.recast_tensor(one, Float32)[0]
                    store_remote(remote_address(at, self.schedule.rank() ^ 1), bits)

    @cute.jit
    def convert_quarters(self, storage, tokens, scales, odd, first):
        """This warp's tokens to fp16; each slab is told of as soon as it is filled."""
        pieces, lane = self.pieces(storage), cute.arch.lane_idx()
        full, near, away = storage.full.data_ptr() + odd * SLABS, 4 * odd, self.away(storage)
        for n in range_constexpr(self.quarters):
            self.convert_rope_here(pieces, away, tokens[n], odd, first + n)
        self.tell(full, ROPE_SLAB, 1)
        for j in range_constexpr(GROUPS):
            into = 4 - near + 2 * j if j < 2 else near + 2 * (j - 2)
            for n in range_constexpr(self.quarters):
                here = cute.arch.shuffle_sync(tokens[n], lane // 2) >= 0
                scale = cute.arch.shuffle_sync(scales[j, n], lane // 2)
                self.convert_for_all(pieces, away, here, scale, (near + j, into), odd, first + n)
            self.tell(full, into, 2)

    def away(self, storage):
        """How far what lies here is from where it lies in the other CTA of the cluster."""
        if self.share == 1:
            return None
        here = storage.kv.data_ptr()
        return remote_address(here, self.schedule.rank() ^ 1) - Int32(here.toint())

    @cute.jit
    def put(self, values, piece, away):
        """Sixteen bytes to all CTAs of the cluster."""
        cute.autovec_copy(values, piece)
        if const_expr(self.share > 1):
            words = cute.recast_tensor(values, Float32)
            store_remote(Int32(piece.iterator.toint()) + away, *[words[i] for i in range(4)])

    @cute.jit
    def convert_for_all(self, pieces, away, here, scale, slabs, odd, group):
        """128 values of each token; of a token a lane takes those of one slab."""
        came, into = slabs
        lane = cute.arch.lane_idx()
        half, row = lane % 2, group * TOKENS + lane // 2
        raw = cute.make_rmem_tensor(cute.make_layout((PIECE, 4)), Uint8)
        for i in range_constexpr(4):
            # Lanes of the other half begin in the middle: neighbors use different banks.
            number = 4 * half + (i ^ (2 * half))
            cute.autovec_copy(self.piece(pieces, odd * SLABS + came, row, number), raw[None, i])
        cute.arch.sync_warp()  # all have read what is written over now
        factor = (scale if here else Float32(0.0)).to(Float16)
        for i in range_constexpr(4):
            words = cute.recast_tensor(raw[None, i], Int32)
            for n in range_constexpr(4):
                words[n] = words[n] if here else Int32(0)
            values = cute.make_rmem_tensor(PIECE, Float16)
            values.store(cute.recast_tensor(raw[None, i], Float8E4M3FN).load().to(Float16) * factor)
            bits = cute.recast_tensor(values, Uint8)
            for n in range_constexpr(2):
                number = 2 * (i ^ (2 * half)) + n
                out = self.piece(pieces, odd * SLABS + into + half, row, number)
                self.put(cute.local_tile(bits, (PIECE,), (n,)), out, away)

    @cute.jit
    def convert_rope_here(self, pieces, away, token, odd, group):
        """Rotary values from bf16, each piece where it lies."""
        lane = cute.arch.lane_idx()
        for i in range_constexpr(TOKENS // 4):
            turn = lane // 8 + 4 * i
            here = cute.arch.shuffle_sync(token, turn) >= 0
            piece = self.piece(pieces, odd * SLABS + ROPE_SLAB, group * TOKENS + turn, lane % 8)
            raw = cute.make_rmem_tensor(PIECE, Uint8)
            cute.autovec_copy(piece, raw)
            words = cute.recast_tensor(raw, Int32)
            for n in range_constexpr(4):
                words[n] = words[n] if here else Int32(0)
            values = cute.make_rmem_tensor(PIECE // 2, Float16)
            values.store(cute.recast_tensor(raw, BFloat16).load().to(Float32).to(Float16))
            self.put(cute.recast_tensor(values, Uint8), piece, away)

    @cute.jit
    def tell(self, full, slab, count: cutlass.Constexpr):
        """Products of all CTAs of the cluster may read this warp's rows of one slab or two."""
        if const_expr(self.share > 1):
            cute.arch.fence_proxy("async.shared", space="cluster")
        else:
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_warp()
        lane = cute.arch.lane_idx()
        if lane < count:
            cute.arch.mbarrier_arrive(full + slab + lane)
            if const_expr(self.share > 1):
                cute.arch.mbarrier_arrive(full + slab + lane, self.schedule.rank() ^ 1)
