"""Kernel of sparse latent attention whose tokens arrive by asynchronous copies, in the tile itself.

Bytes of a tile's tokens need no registers while they are under way, so that a warp has all of its
tokens on their way at once. They land in the half of the tile that its readers let go of first,
and are converted from there: a byte becomes two, so the other half is filled first, and then this
one from its beginning, always behind what has been read.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float8E4M3FN, Float16, Float32, Int32, Uint8, range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import ROPE_SLAB, SLAB, SLABS, SlabLoads, shared_slabs
from mla_var3.kernel.cute_python.kit.sparse import (
    ROPE_BYTES,
    ROW_BYTES,
    SCALES,
    TOKENS,
    WARPS,
    SparseKernel,
)

#: Bytes of a piece, which an asynchronous copy moves, and pieces of a row of a slab.
PIECE, PIECES = 16, 8
#: Groups of 128 values, each with a scale, and slabs of a half.
GROUPS = 4


class GatherKernel(SparseKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    #: Of a consumer and of a producer thread, whose bytes are not in them.
    registers = (232, 40)

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def gather_all(self, storage, q_loads, cache, work, warp_index):
        """All producer warps, as one code."""
        self.gather(storage, q_loads, cache, work, warp_index - CONSUMERS // 32)

    @cute.jit
    def gather(self, storage, q_tensors, cache, work, group):
        """One warp: a quarter of the tokens of each tile."""
        s_q = cute.recast_tensor(shared_slabs(storage.q, Float16, SLABS), BFloat16)
        q_loads = SlabLoads(*q_tensors, s_q)
        free = storage.free.data_ptr()
        taken, evens, odds = Int32(0), Int32(0), Int32(0)  # sequences and tiles before this one
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            for warp in range_constexpr(WARPS):
                if group == warp:
                    self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, warp)
            token = self.token(work, cache, sequence, length, self.place(start, group))
            for tile in cutlass.range(start, stop, unroll=1):
                odd = (tile - start) & 1
                before = odds if odd == 1 else evens
                phase = ((before + (tile - start) // 2) & 1) ^ 1
                cute.arch.mbarrier_wait(free + 3 * odd, phase)  # the half that is let go of first
                cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + odd, phase)
                scales = self.fetch_tokens(storage, cache, token, odd, group)
                self.mark(storage, token, odd, group, cute.arch.lane_idx())
                following = self.token(work, cache, sequence, length, self.place(tile + 1, group))
                cute.arch.mbarrier_wait(free + 1 + odd, phase)
                cute.arch.cp_async_wait_group(0)
                cute.arch.sync_warp()
                self.convert_tokens(storage, token, scales, odd, group)
                token = following
            taken = taken + 1
            evens, odds = evens + (stop - start + 1) // 2, odds + (stop - start) // 2

    @cute.jit
    def mark(self, storage, token, odd, group, lane):
        """Say which of this warp's places a token fills."""
        filled = cute.arch.vote_ballot_sync(token >= 0) & ((1 << TOKENS) - 1)
        if lane == 0:
            words = storage.filled.get_tensor(cute.make_layout((2, WARPS), stride=(WARPS, 1)))
            words[odd, group] = filled

    def pieces(self, storage):
        """Both tiles as bytes."""
        bytes_ = cute.recast_ptr(storage.kv.data_ptr(), dtype=Uint8)
        return cute.make_tensor(bytes_, cute.make_layout(2 * SLABS * SLAB * PIECES * PIECE))

    def piece(self, pieces, slab, row, number):
        """A piece of a row of a slab: [16] bytes, where the 128-byte swizzle has it."""
        return cute.local_tile(
            pieces, (PIECE,), ((slab * SLAB + row) * PIECES + (number ^ (row & 7)),)
        )

    @cute.jit
    def fetch_tokens(self, storage, cache, token, odd, group):
        """Send for the bytes of a warp's tokens, and give the scales of the lane's token.

        Groups of values lie in the order in which they are converted: first those whose values go
        to the other half.
        """
        pieces, lane, page = self.pieces(storage), cute.arch.lane_idx(), cache.shape[1]
        atom = cute.make_copy_atom(
            cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL),
            Uint8,
            num_bits_per_copy=8 * PIECE,
        )
        near, first = odd * SLABS + 4 * odd, 2 - 2 * odd
        for i in range_constexpr(TOKENS // 4):
            turn = lane // 8 + 4 * i
            place = cutlass.max(cute.arch.shuffle_sync(token, turn), 0)
            source, row = cache[place // page, place % page, None], group * TOKENS + turn
            for j in range_constexpr(GROUPS):
                at = ((first + j) % GROUPS) * PIECES + lane % 8
                into = self.piece(pieces, near + j, row, lane % 8)
                cute.copy(atom, cute.local_tile(source, (PIECE,), (at,)), into)
            into = self.piece(pieces, odd * SLABS + ROPE_SLAB, row, lane % 8)
            at = ROPE_BYTES // PIECE + lane % 8
            cute.copy(atom, cute.local_tile(source, (PIECE,), (at,)), into)
        cute.arch.cp_async_commit_group()
        place = cutlass.max(token, 0)
        row = cache[place // page, place % page, None]
        numbers = cute.make_tensor(
            cute.recast_ptr(row.iterator, dtype=Float32), cute.make_layout(ROW_BYTES // 4)
        )
        scales = cute.make_rmem_tensor(GROUPS, Float32)
        for j in range_constexpr(GROUPS):
            scales[j] = numbers[SCALES // 4 + (first + j) % GROUPS]
        return scales

    @cute.jit
    def convert_tokens(self, storage, token, scales, odd, group):
        """A warp's tokens to fp16; each slab is told of as soon as it is filled."""
        pieces, lane = self.pieces(storage), cute.arch.lane_idx()
        full, near = storage.full.data_ptr() + odd * SLABS, 4 * odd
        self.convert_rope(pieces, token, odd, group)
        self.tell(full, ROPE_SLAB, 1)
        here = cute.arch.shuffle_sync(token, lane // 2) >= 0
        for j in range_constexpr(GROUPS):
            scale = cute.arch.shuffle_sync(scales[j], lane // 2)
            into = 4 - near + 2 * j if j < 2 else near + 2 * (j - 2)
            self.convert_group(pieces, here, scale, (near + j, into), odd, group)
            self.tell(full, into, 2)

    @cute.jit
    def convert_group(self, pieces, here, scale, slabs, odd, group):
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
                cute.autovec_copy(cute.local_tile(bits, (PIECE,), (n,)), out)

    @cute.jit
    def convert_rope(self, pieces, token, odd, group):
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
            cute.autovec_copy(cute.recast_tensor(values, Uint8), piece)

    @cute.jit
    def tell(self, full, slab, count: cutlass.Constexpr):
        """Products may read this warp's rows of one slab or two."""
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_warp()
        if cute.arch.lane_idx() < count:
            cute.arch.mbarrier_arrive(full + slab + cute.arch.lane_idx())
