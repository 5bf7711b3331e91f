"""Kernels of latent attention over lists of tokens whose rows hold 16-bit values."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import (
    BFloat16,
    Float32,
    Int32,
    Int64,
    Uint8,
    const_expr,
    range_constexpr,
)
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.gather import PIECE, PIECES
from mla_var3.kernel.cute_python.kit.lists import ListKernel
from mla_var3.kernel.cute_python.kit.merged import LINE
from mla_var3.kernel.cute_python.kit.paged import PagedKernel
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLABS,
)
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.sparse import TOKENS


class RowsKernel(ListKernel):
    """Tokens of 576 values in bfloat16, or of 512; each row's highest score goes with its LSE."""

    def __init__(self, lazy, rope):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind; 0 for an exact highest score.
            rope: Whether rows have rotary values past their 512.
        """
        super().__init__(lazy)
        self.rope = rope

    @property
    def element(self):
        """Type of what is multiplied."""
        return BFloat16

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def token(self, work, caches, sequence, length, place):
        """The token at a place of a list, on its way to L2; -1 where there is none."""
        cache, lists = caches[0], work.table
        found = lists[sequence, cutlass.max(cutlass.min(place, lists.shape[1] - 1), 0)]
        here = (place >= 0) & (place < cutlass.min(length, lists.shape[1])) & (found >= 0)
        here = here & (found < cache.shape[0] * cache.shape[1])
        found = found if here else Int32(-1)
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

    def address(self, caches, token):
        """Where a token's row begins; the first token's where there is none."""
        page, place = caches[0].shape[1], cutlass.max(token, 0)
        return Int64(caches[0][place // page, place % page, None].iterator.toint())

    @cute.jit
    def row(self, low, high, turn, width: cutlass.Constexpr):
        """The row of the token of lane ``turn``, by the halves of addresses: [width] bytes."""
        low, high = cute.arch.shuffle_sync(low, turn), cute.arch.shuffle_sync(high, turn)
        address = (Int64(high) << 32) | (Int64(low) & Int64(0xFFFFFFFF))
        at = cute.make_ptr(Uint8, address, cute.AddressSpace.gmem, assumed_align=PIECE)
        return cute.make_tensor(at, cute.make_layout(width))

    def copy_atom(self):
        """Sixteen bytes from the cache to shared memory."""
        return cute.make_copy_atom(
            cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL),
            Uint8,
            num_bits_per_copy=8 * PIECE,
        )

    @cute.jit
    def fetch_tokens(self, storage, caches, token, odd, group):
        """Send for the half of the rows whose place is free, and the rotary values."""
        address = self.address(caches, token)
        halves = cute.make_rmem_tensor(2, Int32)
        halves[0], halves[1] = Int32(address & Int64(0xFFFFFFFF)), Int32(address >> 32)
        self.fetch_half(storage, halves, odd, odd, group)
        if const_expr(self.rope):
            self.fetch_slab(storage, halves, odd, group, Int32(ROPE_SLAB))
        cute.arch.cp_async_commit_group()
        return halves

    @cute.jit
    def fetch_half(self, storage, halves, odd, right, group):
        """Send for four slabs."""
        for j in range_constexpr(4):
            self.fetch_slab(storage, halves, odd, group, 4 * right + j)

    @cute.jit
    def fetch_slab(self, storage, halves, odd, group, slab):
        """Send for 64 values of each token."""
        pieces, lane, atom = self.pieces(storage), cute.arch.lane_idx(), self.copy_atom()
        for i in range_constexpr(TOKENS // 4):
            turn = lane // 8 + 4 * i
            source = self.row(halves[0], halves[1], turn, (SLABS if self.rope else SLABS - 1) * 128)
            into = self.piece(pieces, odd * SLABS + slab, group * TOKENS + turn, lane % 8)
            cute.copy(atom, cute.local_tile(source, (PIECE,), (slab * PIECES + lane % 8,)), into)

    @cute.jit
    def convert_tokens(self, storage, token, halves, odd, group):
        """The other half; zeros where no token is, and where rotary values would be."""
        self.fetch_half(storage, halves, odd, 1 - odd, group)
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_warp()
        pieces, lane = self.pieces(storage), cute.arch.lane_idx()
        for i in range_constexpr(TOKENS // 4):
            turn = lane // 8 + 4 * i
            if cute.arch.shuffle_sync(token, turn) < 0:
                for slab in range_constexpr(SLABS):
                    self.clear(pieces, odd * SLABS + slab, group * TOKENS + turn, lane % 8)
            elif const_expr(not self.rope):
                self.clear(pieces, odd * SLABS + ROPE_SLAB, group * TOKENS + turn, lane % 8)
        full = storage.full.data_ptr() + odd * SLABS
        self.tell(full, 0, SLABS)

    @cute.jit
    def clear(self, pieces, slab, row, number):
        """Zeros in a piece."""
        none = cute.make_rmem_tensor(PIECE, Uint8)
        words = cute.recast_tensor(none, Int32)
        for n in range_constexpr(4):
            words[n] = Int32(0)
        cute.autovec_copy(none, self.piece(pieces, slab, row, number))

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def begin(self, wg, storage, work, length, first_key, phase):
        """Empty sums, and the queries' rope slab in registers."""
        PagedKernel.begin(self, wg, storage, work, length, first_key, phase)
        wg.limit.fill(-KEYS)  # each tile may have places that no token fills

    def first_queries(self, storage, phase):
        """What the first scores wait for, slab by slab."""
        return self.queries.first(storage, phase)

    @cute.jit
    def store_lse(self, wg, work, lse, sequence, unit, empty):
        """The LSE, and the highest score past it."""
        for r in range_constexpr(2):
            row = work.block * ROWS + wg.row + 8 * r
            if (row < work.heads) & (wg.lane % 4 == 0):
                value = (wg.row_max[r] + cute.math.log2(wg.row_sum[r], fastmath=True)) * unit
                value = empty if wg.row_sum[r] == 0.0 else value
                top = -Float32.inf if wg.row_sum[r] == 0.0 else wg.row_max[r] * Float32(LN_2)
                lse[sequence, row, 0, 0] = value
                lse[sequence, row, 0, 1] = top
