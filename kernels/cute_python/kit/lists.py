"""Kernels of latent attention over lists of tokens in the forms that servers keep caches in.

A list is that of two caches, one after the other, or what a page table says. Tokens are rows of 656
bytes (512 values in e4m3, four scales in fp32, 64 rotary values), of 584 bytes (448 values in e4m3,
64 rotary values, and a scale in ue8m0 per 64 values, which lies past the rows of its page), or of
16-bit values. A token is known by its number, and those of the second cache follow the first's.
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
    Int64,
    Uint8,
    const_expr,
    range_constexpr,
)
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.gather import GROUPS, PIECE, PIECES
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.merged import LINE, MergedKernel
from mla_var3.kernel.cute_python.kit.pages import as_token_rows
from mla_var3.kernel.cute_python.kit.rings import latent_storage
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    ROPE_SLAB,
    SLAB,
    SLABS,
    slab_layout,
)
from mla_var3.kernel.cute_python.kit.sparse import ROPE_BYTES, SCALES, TOKENS
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS

#: Bytes of a row of the form with scales of its page, and of a token's scales there.
MODEL1_ROW, MODEL1_SCALES = 576, 8
#: The first rotary value's byte in such a row.
MODEL1_ROPE = 448


class ListKernel(MergedKernel):
    """Tokens of 656 bytes: of one list, of lists of two caches, or of a page table."""

    #: Bytes that the rotary values of a row begin at.
    rope_bytes = ROPE_BYTES

    def __init__(self, lazy, second=False, table=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            second: Whether lists of a second cache follow.
            table: Whether what stands for lists is a page table.
        """
        super().__init__(lazy)
        self.second, self.table = second, table

    @property
    def element(self):
        """Type of what is multiplied."""
        return Float16

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        cache: cute.Tensor,
        other: cute.Tensor,
        indices: cute.Tensor,
        other_indices: cute.Tensor,
        firsts: cute.Tensor,
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
        """Launch on q [n,1,h,512], qpe [n,1,h,64], caches in bytes [pages,page,width].

        ``lengths`` [n] are of both lists of a query token, the first filled up to whole tiles;
        ``firsts`` [n] are of the first list alone.
        """
        self.dtype, self.out_dtype = self.element, o.element_type
        self.storage = latent_storage(
            self.element, self.queries.barriers, self.rings, self.epilogue.fields()
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
        caches = (cache, other, other_indices, firsts)
        self.list_attention((*load_q, *load_qpe), caches, where, slots, outputs, scale_log2).launch(
            **self.schedule.launch(q, cuts),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            cooperative=True,  # all CTAs run at once, as they must where three share a list
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def list_attention(
        self,
        q_loads: tuple,
        caches: tuple,
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
            self.gather_all(storage, q_loads, caches, work, warp_index)
        else:
            cute.arch.setmaxregister_increase(self.registers[0])
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, slots, side)
            self.consumed(storage, work, outputs, slots)
        self.end()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def token(self, work, caches, sequence, length, place):
        """The token at a place of a list, on its way to L2; -1 where there is none."""
        if const_expr(self.table):
            found = self.paged_token(work, caches, sequence, length, place)
        elif const_expr(self.second):
            found = self.second_token(work, caches, sequence, length, place)
        else:
            found = self.listed(work.table, caches[0], sequence, length, place)
        self.send_for(caches, found)
        return found

    @cute.jit
    def send_for(self, caches, token):
        """Bytes of 16 tokens to L2; of a token two lanes ask for half each."""
        width, row = caches[0].shape[2], self.address(caches, token)
        half, lines = cute.arch.lane_idx() // TOKENS, -(-width // LINE // 2)
        for i in range_constexpr(lines):
            at = row + Int64(cutlass.min((lines * half + i) * LINE, width - 1))
            if token >= 0:
                cute.arch.inline_ptx("prefetch.global.L2 [{$r0}];", read_only_args=[at])

    @cute.jit
    def listed(self, lists, cache, sequence, length, place):
        """The token that a list has at a place, of so many that count."""
        found = lists[sequence, cutlass.max(cutlass.min(place, lists.shape[1] - 1), 0)]
        here = (place >= 0) & (place < cutlass.min(length, lists.shape[1])) & (found >= 0)
        here = here & (found < cache.shape[0] * cache.shape[1])
        return found if here else Int32(-1)

    @cute.jit
    def second_token(self, work, caches, sequence, length, place):
        """Of the first list, or past its last tile of the second one."""
        cache, other, other_indices, firsts = caches
        first = firsts[sequence]
        filled = cute.ceil_div(first, KEYS) * KEYS
        mine = self.listed(work.table, cache, sequence, first, place)
        past = place - filled
        more = self.listed(other_indices, other, sequence, length - filled, past)
        more = more + cache.shape[0] * cache.shape[1] if more >= 0 else more
        return mine if place < filled else more

    @cute.jit
    def paged_token(self, work, caches, sequence, length, place):
        """Of the sequence of a query token; those of one sequence follow each other."""
        page, queries = caches[0].shape[1], work.lengths.shape[0] // work.table.shape[0]
        at = cutlass.min(place // page, work.table.shape[1] - 1)
        found = work.table[sequence // queries, at]
        here = (place < cutlass.min(length, work.table.shape[1] * page)) & (found >= 0)
        here = here & (found < caches[0].shape[0])
        return found * page + place % page if here else Int32(-1)

    @cute.jit
    def address(self, caches, token):
        """Where a token's row begins; the first token's where there is none."""
        cache, other, _, _ = caches
        page = cache.shape[1]
        place = cutlass.max(token, 0)
        if const_expr(self.second):
            place = place if place < cache.shape[0] * page else Int32(0)
        found = Int64(cache[place // page, place % page, None].iterator.toint())
        if const_expr(self.second):
            past = token - cache.shape[0] * page
            width, place = other.shape[1], cutlass.max(past, 0)
            more = Int64(other[place // width, place % width, None].iterator.toint())
            found = more if past >= 0 else found
        return found

    @cute.jit
    def row(self, low, high, turn, width: cutlass.Constexpr):
        """The row of the token of lane ``turn``, by the halves of addresses: [width] bytes."""
        low, high = cute.arch.shuffle_sync(low, turn), cute.arch.shuffle_sync(high, turn)
        address = (Int64(high) << 32) | (Int64(low) & Int64(0xFFFFFFFF))
        at = cute.make_ptr(Uint8, address, cute.AddressSpace.gmem, assumed_align=PIECE)
        return cute.make_tensor(at, cute.make_layout(width))

    @cute.jit
    def fetch_tokens(self, storage, caches, token, odd, group):
        """Send for the bytes of a warp's tokens, and give the scales of the lane's token."""
        pieces, lane = self.pieces(storage), cute.arch.lane_idx()
        address, width = self.address(caches, token), caches[0].shape[2]
        low, high = Int32(address & Int64(0xFFFFFFFF)), Int32(address >> 32)
        atom = self.copy_atom()
        near, first = odd * SLABS + 4 * odd, 2 - 2 * odd
        for i in range_constexpr(TOKENS // 4):
            turn = lane // 8 + 4 * i
            source, row = self.row(low, high, turn, width), group * TOKENS + turn
            for j in range_constexpr(GROUPS):
                at = ((first + j) % GROUPS) * PIECES + lane % 8
                into = self.piece(pieces, near + j, row, lane % 8)
                cute.copy(atom, cute.local_tile(source, (PIECE,), (at,)), into)
            into = self.piece(pieces, odd * SLABS + ROPE_SLAB, row, lane % 8)
            at = self.rope_bytes // PIECE + lane % 8
            cute.copy(atom, cute.local_tile(source, (PIECE,), (at,)), into)
        cute.arch.cp_async_commit_group()
        return self.scales(caches, address, token, first)

    def copy_atom(self):
        """Sixteen bytes from the cache to shared memory."""
        return cute.make_copy_atom(
            cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL),
            Uint8,
            num_bits_per_copy=8 * PIECE,
        )

    @cute.jit
    def scales(self, caches, address, token, first):
        """Of the lane's token, a scale per group in the order in which they are converted."""
        at = cute.make_ptr(Float32, address, cute.AddressSpace.gmem, assumed_align=4)
        numbers = cute.make_tensor(at, cute.make_layout(ROPE_BYTES // 4))
        scales = cute.make_rmem_tensor(GROUPS, Float32)
        for j in range_constexpr(GROUPS):
            scales[j] = numbers[SCALES // 4 + (first + j) % GROUPS]
        return scales


class Model1Kernel(ListKernel):
    """Tokens of 584 bytes: seven slabs of e4m3 values, and rotary values that count as values."""

    rope_bytes = MODEL1_ROPE

    @cute.jit
    def scales(self, caches, address, token, first):
        """Of the lane's token, eight exponents in two words."""
        cache, other, _, _ = caches
        page, place = cache.shape[1], cutlass.max(token, 0)
        if const_expr(self.second):
            past = token - cache.shape[0] * page
            page = other.shape[1] if past >= 0 else page
            place = past if past >= 0 else place
        row = Int64(place % page)
        at = address - row * MODEL1_ROW + Int64(page) * MODEL1_ROW + row * MODEL1_SCALES
        words = cute.make_tensor(
            cute.make_ptr(Int32, at, cute.AddressSpace.gmem, assumed_align=4), cute.make_layout(2)
        )
        found = cute.make_rmem_tensor(2, Int32)
        for i in range_constexpr(2):
            found[i] = words[i]
        return found

    @cute.jit
    def convert_tokens(self, storage, token, scales, odd, group):
        """A warp's tokens to fp16; beside the last group's one slab lie the rotary values."""
        pieces, lane = self.pieces(storage), cute.arch.lane_idx()
        full, near = storage.full.data_ptr() + odd * SLABS, 4 * odd
        here = cute.arch.shuffle_sync(token, lane // 2) >= 0
        words = cute.make_rmem_tensor(2, Int32)
        for i in range_constexpr(2):
            words[i] = cute.arch.shuffle_sync(scales[i], lane // 2)
        for j in range_constexpr(GROUPS):
            # Even tiles convert the groups 2, 3, 0, 1, odd ones 0, 1, 2, 3.
            which = (2 - 2 * odd + j) % GROUPS
            scale = self.scale(words, 2 * which + lane % 2)
            into = 4 - near + 2 * j if j < 2 else near + 2 * (j - 2)
            self.convert_slabs(pieces, here, scale, (near + j, into), which, odd, group)
        self.convert_rotary(pieces, token, odd, group)
        # At once: what products begin with is converted last.
        self.tell(full, 0, SLABS)

    @cute.jit
    def scale(self, words, which):
        """The power of two that one of eight bytes stands for."""
        word = words[1] if which >= 4 else words[0]
        bits = cute.make_rmem_tensor(1, Int32)
        bits[0] = ((word >> (8 * (which % 4))) & 0xFF) << 23
        return cute.recast_tensor(bits, Float32)[0]

    @cute.jit
    def convert_slabs(self, pieces, here, scale, slabs, which, odd, group):
        """128 values of each token, of the last group 64; a lane takes those of one slab."""
        came, into = slabs
        lane = cute.arch.lane_idx()
        half, row = lane % 2, group * TOKENS + lane // 2
        raw = cute.make_rmem_tensor(cute.make_layout((PIECE, 4)), Uint8)
        for i in range_constexpr(4):
            number = 4 * half + (i ^ (2 * half))
            cute.autovec_copy(self.piece(pieces, odd * SLABS + came, row, number), raw[None, i])
        cute.arch.sync_warp()  # all have read what is written over now
        factor = (scale if here else Float32(0.0)).to(Float16)
        if (half == 0) | (which < GROUPS - 1):
            for i in range_constexpr(4):
                words = cute.recast_tensor(raw[None, i], Int32)
                for n in range_constexpr(4):
                    words[n] = words[n] if here else Int32(0)
                values = cute.make_rmem_tensor(PIECE, Float16)
                exact = cute.recast_tensor(raw[None, i], Float8E4M3FN).load().to(Float16)
                values.store(exact * factor)
                bits = cute.recast_tensor(values, Uint8)
                for n in range_constexpr(2):
                    number = 2 * (i ^ (2 * half)) + n
                    out = self.piece(pieces, odd * SLABS + into + half, row, number)
                    cute.autovec_copy(cute.local_tile(bits, (PIECE,), (n,)), out)

    @cute.jit
    def convert_rotary(self, pieces, token, odd, group):
        """Rotary values to the last slab of the values; zeros where they came."""
        lane = cute.arch.lane_idx()
        for i in range_constexpr(TOKENS // 4):
            turn = lane // 8 + 4 * i
            here, row = cute.arch.shuffle_sync(token, turn) >= 0, group * TOKENS + turn
            came = self.piece(pieces, odd * SLABS + ROPE_SLAB, row, lane % 8)
            raw, none = cute.make_rmem_tensor(PIECE, Uint8), cute.make_rmem_tensor(PIECE, Uint8)
            cute.autovec_copy(came, raw)
            words, zeros = cute.recast_tensor(raw, Int32), cute.recast_tensor(none, Int32)
            for n in range_constexpr(4):
                words[n] = words[n] if here else Int32(0)
                zeros[n] = Int32(0)
            values = cute.make_rmem_tensor(PIECE // 2, Float16)
            values.store(cute.recast_tensor(raw, BFloat16).load().to(Float32).to(Float16))
            out = self.piece(pieces, odd * SLABS + ROPE_SLAB - 1, row, lane % 8)
            cute.autovec_copy(cute.recast_tensor(values, Uint8), out)
            cute.autovec_copy(none, came)
