"""Lists of tokens of a cache in fp8, in the forms that servers keep, read into registers.

As ``window``, for lists of one cache or two and for page tables, and for tokens of 656 or 584
bytes.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float16, Float32, Int32, Int64, Uint8, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.early import EarlyKernel
from mla_var3.kernel.cute_python.kit.gather import PIECE, GatherKernel
from mla_var3.kernel.cute_python.kit.lists import ListKernel
from mla_var3.kernel.cute_python.kit.slabs import KEYS, SLABS
from mla_var3.kernel.cute_python.kit.sparse import SCALES, TOKENS
from mla_var3.kernel.cute_python.kit.window import FOUR, WindowKernel

#: Bytes of a row of the form with scales of its page, and of a token's scales there.
MODEL1_ROW, MODEL1_SCALES = 576, 8
#: The first rotary value's byte in such a row.
MODEL1_ROPE = 448


class ListWindowKernel(WindowKernel, ListKernel):
    """Tokens of 656 bytes: of one list, of lists of two caches, or of a page table."""

    gather_all = GatherKernel.gather_all
    ahead = False

    @cute.jit
    def read(self, looked, work, caches, sequence, length, place):
        """The number in its list, and which of two lists it is; or a page, and the row there."""
        looked[0], looked[1] = Int32(-1), Int32(0)
        if const_expr(self.table):
            page, queries = caches[0].shape[1], work.lengths.shape[0] // work.table.shape[0]
            looked[1] = place % page
            if place < cutlass.min(length, work.table.shape[1] * page):
                looked[0] = work.table[sequence // queries, place // page]
        elif const_expr(self.second):
            first = caches[3][sequence]
            past = place - cute.ceil_div(first, KEYS) * KEYS
            looked[1] = Int32(past >= 0)
            if place < cutlass.min(first, work.table.shape[1]):
                looked[0] = work.table[sequence, place]
            if (past >= 0) & (past < cutlass.min(length - place + past, caches[2].shape[1])):
                looked[0] = caches[2][sequence, past]
        elif place < cutlass.min(length, work.table.shape[1]):
            looked[0] = work.table[sequence, place]

    @cute.jit
    def locate(self, caches, looked):
        """Whether a token is there, where it begins, and where its scales do."""
        found, which = looked[0], looked[1]
        page = caches[0].shape[1]
        if const_expr(self.table):
            here = (found >= 0) & (found < caches[0].shape[0])
            row, scales = self.begins(caches[0], found if here else Int32(0), which)
        elif const_expr(self.second):
            width = caches[1].shape[1]
            count = caches[1].shape[0] * width if which == 1 else caches[0].shape[0] * page
            here = (found >= 0) & (found < count)
            mine = found if here & (which == 0) else Int32(0)
            theirs = found if here & (which == 1) else Int32(0)
            row, scales = self.begins(caches[0], mine // page, mine % page)
            other, exponents = self.begins(caches[1], theirs // width, theirs % width)
            row, scales = (other if which == 1 else row), (exponents if which == 1 else scales)
        else:
            here = (found >= 0) & (found < caches[0].shape[0] * page)
            place = found if here else Int32(0)
            row, scales = self.begins(caches[0], place // page, place % page)
        return here, row, scales

    def begins(self, cache, page, place):
        """Where a row of a page begins, and where its scales do."""
        row = Int64(cache[page, place, None].iterator.toint())
        return row, row + SCALES


class Model1Kernel(EarlyKernel, ListWindowKernel):
    """Tokens of 584 bytes: seven slabs of e4m3 values, and rotary values that count as values."""

    values, near, each, words = 7, 3, 1, 1
    rope_slab, rope_bytes, row_bytes = 7, MODEL1_ROPE, MODEL1_ROW
    told = (0, 1, 2), (3, 4, 5, 6, 7)
    orders = (0, 1, 2, 3, 4, 5, 6, 7), (4, 5, 6, 3, 0, 1, 2, 7)

    def begins(self, cache, page, place):
        """Where a row of a page begins, and where its scales do, past the rows."""
        row, width = Int64(cache[page, place, None].iterator.toint()), Int64(cache.shape[1])
        first = row - Int64(place) * MODEL1_ROW
        return row, first + width * MODEL1_ROW + Int64(place) * MODEL1_SCALES

    def exact(self, words):
        """The powers of two that four bytes stand for."""
        bits = cute.make_rmem_tensor(4, Int32)
        for i in range(4):
            bits[i] = ((words[0] >> (8 * i)) & 0xFF) << 23
        return cute.recast_tensor(bits, Float32)

    @cute.jit
    def factor(self, factors, j: cutlass.Constexpr, i: cutlass.Constexpr, odd):
        """The scale of a piece; slab 3 is the fourth in both orders."""
        if const_expr(j == 3):
            found = factors[3, 1, i] if odd == 1 else factors[3, 0, i]
        else:
            found = factors[j % 4, j // 4, i]
        return found

    # ---- rotary values ---------------------------------------------------------------------
    @cute.jit
    def fetch_rope(self, storage, window, odd, group):
        """Send for the rotary values: to the place of even tiles, where they are converted from."""
        ListWindowKernel.fetch_rope(self, storage, window, 0, group)

    @cute.jit
    def await_rope(self, free, odd, phase):
        """Nobody but the lane itself reads what it has sent for."""

    @cute.jit
    def put_rope(self, storage, filled, odd, group):
        """Rotary values in fp16 to the last slab of the values."""
        pieces, lane = self.pieces(storage), cute.arch.lane_idx()
        for i in range_constexpr(TOKENS // FOUR):
            row, came = FOUR * i + lane // 8, cute.make_rmem_tensor(PIECE, Uint8)
            cute.autovec_copy(self.landing(storage, 0, group, i), came)
            raw = self.masked(came, filled, row)
            values = cute.make_rmem_tensor(PIECE // 2, Float16)
            values.store(cute.recast_tensor(raw, BFloat16).load().to(Float32).to(Float16))
            out = self.piece(pieces, odd * SLABS + self.rope_slab, group * TOKENS + row, lane % 8)
            cute.autovec_copy(cute.recast_tensor(values, Uint8), out)
