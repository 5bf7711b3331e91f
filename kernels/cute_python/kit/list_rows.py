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
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLABS,
    SlabLoads,
    shared_slabs,
)
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.sparse import TOKENS, WARPS


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
    def gather(self, storage, q_tensors, caches, work, group):
        """One warp: a quarter of the tokens of each tile, half a tile after the other.

        A half is told of once the next one has been sent for, if there is room for that: two are on
        their way at a time. ``sent`` is the one not told of yet: its tile's tokens, whether that
        tile is odd, which half of it, and -1 where there is none.
        """
        s_q = shared_slabs(storage.q, BFloat16, SLABS)
        q_loads, free = SlabLoads(*q_tensors, s_q), storage.free.data_ptr()
        sent = cute.make_rmem_tensor(3, Int32)
        sent[2] = Int32(-1)
        taken, evens, odds = Int32(0), Int32(0), Int32(0)  # sequences and tiles before this one
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            found = self.look(work, sequence, self.place(start, group))
            token = self.token(work, caches, found, length, self.place(start, group))
            found = self.look(work, sequence, self.place(start + 1, group))
            self.tell_sent(storage, sent, group, 0)  # whoever gives back the queries waits for it
            for warp in range_constexpr(WARPS):
                if group == warp:
                    self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, warp)
            for tile in cutlass.range(start, stop, unroll=1):
                odd = (tile - start) & 1
                before = odds if odd == 1 else evens
                phase = ((before + (tile - start) // 2) & 1) ^ 1
                halves = self.halves(caches, token)
                # The half that is let go of first, and the rotary values.
                near, rope = free + 3 * odd, free + Free.EVEN_ROPE + odd
                ready = cute.arch.mbarrier_test_wait(near, phase)
                ready = ready & cute.arch.mbarrier_test_wait(rope, phase)
                self.request(
                    storage, halves, sent, (ready, near, rope, phase), (token, odd, 0), group
                )
                self.mark(storage, token, odd, group, cute.arch.lane_idx())
                following = self.token(work, caches, found, length, self.place(tile + 1, group))
                found = self.look(work, sequence, self.place(tile + 2, group))
                far = free + 1 + odd
                ready = cute.arch.mbarrier_test_wait(far, phase)
                self.request(
                    storage, halves, sent, (ready, far, far, phase), (token, odd, 1), group
                )
                token = following
            taken = taken + 1
            evens, odds = evens + (stop - start + 1) // 2, odds + (stop - start) // 2
        self.tell_sent(storage, sent, group, 0)

    @cute.jit
    def request(self, storage, halves, sent, room, half, group):
        """Send for half a tile, and tell of the half before: first, where there is no room yet."""
        ready, first, second, phase = room
        token, odd, which = half
        ready = cute.arch.vote_all_sync(ready)
        if ready == 0:
            self.tell_sent(storage, sent, group, 0)
            cute.arch.mbarrier_wait(first, phase)
            cute.arch.mbarrier_wait(second, phase)
        self.fetch_half(storage, halves, odd, odd ^ which, group)
        if const_expr(which == 0 and self.rope):
            self.fetch_slab(storage, halves, odd, group, Int32(ROPE_SLAB))
        cute.arch.cp_async_commit_group()
        if ready != 0:
            self.tell_sent(storage, sent, group, 1)
        sent[0], sent[1], sent[2] = token, odd, Int32(which)

    @cute.jit
    def tell_sent(self, storage, sent, group, behind: cutlass.Constexpr):
        """Tell of the half that is on its way once it is there, but for ``behind`` groups after it.

        Zeros where no token is, and where rotary values would be.
        """
        if sent[2] >= 0:
            cute.arch.cp_async_wait_group(behind)
            cute.arch.sync_warp()
            pieces, lane = self.pieces(storage), cute.arch.lane_idx()
            token, odd, which = sent[0], sent[1], sent[2]
            first = 4 * (odd ^ which)
            for i in range_constexpr(TOKENS // 4):
                turn = lane // 8 + 4 * i
                row, absent = group * TOKENS + turn, cute.arch.shuffle_sync(token, turn) < 0
                if absent:
                    for j in range_constexpr(4):
                        self.clear(pieces, odd * SLABS + first + j, row, lane % 8)
                if (which == 0) & (absent | (not self.rope)):
                    self.clear(pieces, odd * SLABS + ROPE_SLAB, row, lane % 8)
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.sync_warp()
            slab = first + lane if lane < 4 else Int32(ROPE_SLAB)
            if lane < 5 - which:
                cute.arch.mbarrier_arrive(storage.full.data_ptr() + odd * SLABS + slab)
        sent[2] = Int32(-1)

    def look(self, work, sequence, place):
        """Begin to read a place of a list."""
        return work.table[sequence, cutlass.max(cutlass.min(place, work.table.shape[1] - 1), 0)]

    @cute.jit
    def token(self, work, caches, found, length, place):
        """The token that was read, on its way to L2; -1 where there is none."""
        here = (place >= 0) & (place < cutlass.min(length, work.table.shape[1])) & (found >= 0)
        here = here & (found < caches[0].shape[0] * caches[0].shape[1])
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

    def halves(self, caches, token):
        """The halves of the address of the lane's token."""
        address = self.address(caches, token)
        halves = cute.make_rmem_tensor(2, Int32)
        halves[0], halves[1] = Int32(address & Int64(0xFFFFFFFF)), Int32(address >> 32)
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
