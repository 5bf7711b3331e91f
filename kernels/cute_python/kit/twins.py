"""Two CTAs with the same lists, each of which converts half of a tile's tokens for both.

The CTAs of a cluster have neighboring row tiles. A producer warp has eight tokens of a tile, holds
those of the next one in registers as in ``window``, and writes what it converts to the shared
memory of both CTAs, where barriers count what comes from the other. Eight lanes write a row of a
slab, 128 bytes: what crosses to the other CTA in half rows takes twice as many packets.

A reload of a spilled register would wait for all tokens that the warp has under way. So what a warp
knows of the next tiles is packed into two words, and all lists pass through one loop.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

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

from mla_var3.kernel.cute_python.kit.alternate import AlternateEpilogue
from mla_var3.kernel.cute_python.kit.dsmem import remote_address, store_counted
from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.merged import LINE
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import KEYS, SLAB_BYTES, SLABS, SlabLoads, shared_slabs
from mla_var3.kernel.cute_python.kit.sparse import WARPS
from mla_var3.kernel.cute_python.kit.window import WindowKernel, at_address, shuffled

#: Tokens of a warp, lanes that look up one of them, and lanes that have a row of a slab.
TOKENS, LOOKERS, LANES = 8, 4, 8
#: Bytes that a lane reads at once: they become a piece.
HALF_PIECE = PIECE // 2
#: Bytes of a row of a slab.
ROW = LANES * PIECE


class Ahead(enum.IntEnum):
    """Bits of what is known of this tile, and, each twice as high, of the next and the one after.

    Those of the tile that is looked up next stand apart.
    """

    BEGINS, PAST = 1, 1 << 4  # it is the first of its list; there is no such tile
    NEW, OVER, APART = 1 << 16, 1 << 20, 14
    KEPT, MOVED, THIRD = 0x77, 0x33, 0x44


class Held(NamedTuple):
    """Registers of a lane; of each two, the first is of tokens 0 to 3 of the warp."""

    looked: cute.Tensor  # what a list has, and what ``read`` says of it
    cursor: cute.Tensor  # where lists are looked up: list, tile, one past its last, length
    ahead: cute.Tensor  # which of the next tiles begin a list, and which there are not
    # Bit 0: this tile is an odd one. 1 and 2: parities of how many even and odd ones have been
    # filled. 3: the token looked up for the next tile is there. The others: lists begun.
    ring: cute.Tensor
    further: cute.Tensor  # where the token looked up last begins; 0 where there is none
    apart: cute.Tensor  # how far from there its scales are
    rows: cute.Tensor  # where the lane's bytes of two tokens begin; where scales of its own lie
    pieces: cute.Tensor  # [16, slabs] bytes of the next tile: eight of each token, or rotary ones
    words: cute.Tensor  # scales of the token looked up, as they come
    scales: cute.Tensor  # those of this tile's two tokens in fp16, in the order of conversion
    masks: cute.Tensor  # all ones where a token is there: the one looked up, and the two


class TwinsEpilogue(AlternateEpilogue):
    """Shared memory beside the slabs: a word for each warp's tokens of either tile."""

    def fields(self):
        """Further fields of shared memory, before the slabs."""
        return {**super().fields(), "filled": cute.struct.MemRange[Int32, 4 * WARPS]}


class TwinsKernel(WindowKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    ctas = 2
    #: Words of scales per token.
    words = 4
    #: The slab that is the same in both orders.
    fixed = None
    #: What comes from the other CTA is told of by itself, slab by slab.
    fenced = tuple(range(SLABS))

    def __init__(self, *settings):
        super().__init__(*settings)
        self.hide, self.epilogue = hide_apart, TwinsEpilogue(1)

    # ---- producer warps --------------------------------------------------------------------
    def held(self):
        """Registers of a lane."""
        count = 8 // self.each
        return Held(
            *(cute.make_rmem_tensor(n, Int32) for n in (2, 4, 1, 1)),
            cute.make_rmem_tensor(1, Int64),
            cute.make_rmem_tensor(1, Int32),
            cute.make_rmem_tensor(3, Int64),
            cute.make_rmem_tensor(cute.make_layout((PIECE, self.values + 2)), Uint8),
            cute.make_rmem_tensor(self.words, Int32),
            cute.make_rmem_tensor(2 * count, Float16),
            cute.make_rmem_tensor(3, Int32),
        )

    @cute.jit
    def gather(self, storage, q_tensors, caches, work, group):
        """One warp: an eighth of the tokens of each tile, of all lists in one loop."""
        s_q = cute.recast_tensor(shared_slabs(storage.q, Float16, SLABS), BFloat16)
        q_loads, held = SlabLoads(*q_tensors, s_q), self.held()
        held.ahead[0], held.ring[0] = Int32(0), Int32(0)
        self.begin_list(held, work, work.first)
        self.look(held, work, caches, group)
        self.find(held, caches)
        self.look(held, work, caches, group)
        self.begin_next(held, work, caches, group)
        self.look(held, work, caches, group)
        for j in range_constexpr(self.values):
            self.fetch(held, j, Int32(0))
        self.fetch_scales(held)
        self.fetch_rotary(held)
        while (held.ahead[0] & Ahead.PAST) == 0:
            begins = held.ahead[0] & Ahead.BEGINS
            if begins != 0:
                taken = held.ring[0] >> 4
                sequence, parity = work.first + taken, (taken & 1) ^ 1
                self.queries.load(storage, q_loads, work.block, sequence, parity, group)
                held.ring[0] = held.ring[0] + 16
            odd = Int32(0) if begins != 0 else (held.ring[0] & 1) ^ 1
            held.ring[0] = (held.ring[0] ^ (2 << odd)) & -2 | odd
            self.convert_all(storage, held, work, caches, group)

    def eighth(self, group):
        """Which eighth of a tile's tokens a warp has."""
        return group + WARPS * self.schedule.rank()

    # ---- lists -----------------------------------------------------------------------------
    def place(self, tile, group):
        """Where in its list a lane looks."""
        return tile * KEYS + self.eighth(group) * TOKENS + cute.arch.lane_idx() // LOOKERS

    @cute.jit
    def begin_list(self, held, work, sequence):
        """Look up a list next; past the last one, nothing more."""
        self.open(held.cursor, work, sequence)
        over = Int32(Ahead.OVER) if sequence > work.last else Int32(0)
        held.cursor[0] = cutlass.min(sequence, work.last)
        held.ahead[0] = (held.ahead[0] & Ahead.KEPT) | Ahead.NEW | over

    @cute.jit
    def look(self, held, work, caches, group):
        """Begin to read what a list has at the lane's place, and go on to the next tile."""
        cursor, ahead = held.cursor, held.ahead
        moved, over = (ahead[0] >> 1) & Ahead.MOVED, ahead[0] & Ahead.OVER
        ahead[0] = moved | ((ahead[0] >> Ahead.APART) & Ahead.THIRD) | over
        self.read(held.looked, work, caches, cursor[0], cursor[3], self.place(cursor[1], group))
        cursor[1] = cursor[1] + 1
        if cursor[1] >= cursor[2]:
            self.begin_list(held, work, cursor[0] + 1)

    @cute.jit
    def find(self, held, caches):
        """Where the lane's token and its scales begin; it is on its way to L2."""
        here, row, scales = self.locate(caches, held.looked)
        held.further[0] = row if here else Int64(0)
        held.apart[0] = Int32(scales - row) if here else Int32(0)
        for i in range_constexpr(-(-self.row_bytes // LINE // LOOKERS)):
            line = (i * LOOKERS + cute.arch.lane_idx() % LOOKERS) * LINE
            if here & (line < self.row_bytes):
                at = row + Int64(line)
                cute.arch.inline_ptx("prefetch.global.L2 [{$r0}];", read_only_args=[at])

    def any_row(self, caches):
        """Where there are bytes to read for a place without a token."""
        return Int64(caches.iterator.toint())

    def token(self, i):
        """The lane's first or second token of the warp's eight."""
        return TOKENS // 2 * i + cute.arch.lane_idx() // LANES

    @cute.jit
    def begin_next(self, held, work, caches, group):
        """Begin with the tokens found last: where their scales and the lane's bytes are."""
        row = held.further[0]
        held.ring[0] = (held.ring[0] & -9) | (Int32(8) if row != 0 else Int32(0))
        row = row if row != 0 else self.any_row(caches)
        held.rows[2] = row + Int64(held.apart[0])
        for i in range_constexpr(2):
            mine = Int64(HALF_PIECE * (cute.arch.lane_idx() % LANES))
            held.rows[i] = shuffled(row, LOOKERS * self.token(i)) + mine
        self.find(held, caches)

    # ---- scales ----------------------------------------------------------------------------
    @cute.jit
    def fetch_scales(self, held):
        """Begin to read the next tile's scales."""
        words = at_address(held.rows[2], Int32, self.words, 4 * self.words)
        cute.autovec_copy(words, held.words)

    @cute.jit
    def take_scales(self, held, odd):
        """The scales of the tile that is begun with, those of its near half first."""
        held.masks[0] = Int32(-1) if (held.ring[0] & 8) != 0 else Int32(0)
        exact, count = self.exact(held.words), cute.size(held.scales) // 2
        found = cute.make_rmem_tensor(count, Float16)
        mine = cute.make_rmem_tensor(count, Float16)
        for i in range_constexpr(count):
            found[i] = exact[i].to(Float16)
        pairs, into = cute.recast_tensor(found, Int32), cute.recast_tensor(mine, Int32)
        half = count // 4
        for i in range_constexpr(2 * half):
            pairs[i] = pairs[i] & held.masks[0]
        for i in range_constexpr(half):
            into[i] = pairs[half + i] if odd == 1 else pairs[i]
            into[half + i] = pairs[i] if odd == 1 else pairs[half + i]
        if const_expr(self.fixed is not None):
            mine[self.fixed] = mine[self.fixed + 4] if odd == 1 else mine[self.fixed]
        every = cute.recast_tensor(held.scales, Int32)
        for i in range_constexpr(2):
            source = LOOKERS * self.token(i)
            for k in range_constexpr(2 * half):
                every[2 * half * i + k] = cute.arch.shuffle_sync(into[k], source)
            held.masks[1 + i] = cute.arch.shuffle_sync(held.masks[0], source)

    # ---- pieces ----------------------------------------------------------------------------
    @cute.jit
    def fetch(self, held, j: cutlass.Constexpr, odd):
        """Begin to read a slab's bytes of both tokens."""
        for i in range_constexpr(2):
            at = held.rows[i] + Int64(64 * self.slab(j, odd))
            into = cute.local_tile(held.pieces[None, j], (HALF_PIECE,), (i,))
            cute.autovec_copy(at_address(at, Uint8, HALF_PIECE, HALF_PIECE), into)

    @cute.jit
    def fetch_rotary(self, held):
        """Begin to read the rotary values."""
        for i in range_constexpr(2):
            mine = HALF_PIECE * (cute.arch.lane_idx() % LANES)  # beside what ``rows`` has of it
            at = held.rows[i] + Int64(self.rope_bytes + mine)
            cute.autovec_copy(at_address(at, Uint8, PIECE, PIECE), held.pieces[None, self.values + i])

    @cute.jit
    def convert_all(self, storage, held, work, caches, group):
        """A warp's tokens to fp16, slab by slab; the next tile's follow them into registers."""
        odd, free = held.ring[0] & 1, storage.free.data_ptr()
        full = storage.full.data_ptr() + odd * SLABS
        cute.arch.mbarrier_wait(free + 3 * odd, self.parity(held, odd))
        self.take_scales(held, odd)  # all that is under way has come
        self.mark_tokens(storage, held, odd, group)
        for j in range_constexpr(self.values):
            if const_expr(j == self.near):
                cute.arch.mbarrier_wait(free + 1 + odd, self.parity(held, odd))
            self.convert_slab(storage, held, odd, group, j)
            # Not before: what is loaded ahead of its turn takes registers that there are not.
            cute.arch.sync_warp()
            if const_expr(j == 1):
                self.begin_next(held, work, caches, group)
            # A slab behind, so that registers of one are free.
            if const_expr(j > 0):
                self.fetch(held, j - 1, self.next_odd(held))
            for told in self.told[:-1]:
                if const_expr(j == told[-1]):
                    self.tell_of(full, odd, told)
        self.fetch(held, self.values - 1, self.next_odd(held))
        cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + odd, self.parity(held, odd))
        for i in range_constexpr(2):
            self.put_rotary(storage, held, odd, group, i)
        self.tell_of(full, odd, self.told[-1])
        self.fetch_scales(held)
        if (held.ahead[0] & (2 * Ahead.PAST)) == 0:
            self.fetch_rotary(held)
        self.look(held, work, caches, group)

    @cute.jit
    def parity(self, held, odd):
        """Parity of how many even or odd tiles have been filled, this one counted."""
        return (held.ring[0] >> (1 + odd)) & 1

    @cute.jit
    def next_odd(self, held):
        """Whether the next tile is an odd one: not where it begins a list."""
        follows = (held.ahead[0] & (2 * Ahead.BEGINS)) == 0
        return cutlass.select_(follows, (held.ring[0] & 1) ^ 1, Int32(0))

    @cute.jit
    def convert_slab(self, storage, held, odd, group, j: cutlass.Constexpr):
        """Both tokens' bytes to a slab of both CTAs."""
        count, slab = cute.size(held.scales) // 2, odd * SLABS + self.slab(j, odd)
        words = cute.recast_tensor(held.pieces[None, j], Int32)
        for i in range_constexpr(2):
            raw = cute.make_rmem_tensor(2, Int32)
            for k in range_constexpr(2):
                raw[k] = words[2 * i + k] & held.masks[1 + i]
            values = cute.make_rmem_tensor(HALF_PIECE, Float16)
            factor = held.scales[count * i + j // self.each]
            values.store(cute.recast_tensor(raw, Float8E4M3FN).load().to(Float16) * factor)
            self.put(storage, cute.recast_tensor(values, Uint8), slab, group, i)

    @cute.jit
    def put_rotary(self, storage, held, odd, group, i: cutlass.Constexpr):
        """Rotary values to their slab, as they are: places without a token are hidden."""
        part = held.pieces[None, self.values + i]
        self.put(storage, part, odd * SLABS + self.rope_slab, group, i)

    # ---- both CTAs -------------------------------------------------------------------------
    @cute.jit
    def away(self, storage):
        """How far what lies here is from where it lies in the other CTA."""
        here = storage.kv.data_ptr()
        return remote_address(here, self.schedule.rank() ^ 1) - Int32(here.toint())

    @cute.jit
    def put(self, storage, part, slab, group, i: cutlass.Constexpr):
        """The lane's piece of a token's row of a slab, to both CTAs, where the swizzle has it."""
        token = self.token(i)
        row = (self.eighth(group) * TOKENS + token) * ROW
        row = row + (cute.arch.lane_idx() % LANES ^ token) * PIECE
        at = Int32(storage.kv.data_ptr().toint()) + row + slab * SLAB_BYTES
        here = cute.make_ptr(Uint8, at, cute.AddressSpace.smem, assumed_align=PIECE)
        cute.autovec_copy(part, cute.make_tensor(here, cute.make_layout(PIECE)))
        words, away = cute.recast_tensor(part, Float32), self.away(storage)
        barrier = Int32((storage.full.data_ptr() + slab).toint()) + away
        store_counted(at + away, barrier, *[words[k] for k in range(4)])

    @cute.jit
    def mark_tokens(self, storage, held, odd, group):
        """Say in both CTAs which of this warp's places a token fills."""
        lane = cute.arch.lane_idx()
        mine = cute.arch.shuffle_sync(held.masks[0], lane * LOOKERS % 32)
        filled = cute.arch.vote_ballot_sync(mine != 0) & ((1 << TOKENS) - 1)
        if lane == 0:
            at = storage.filled.data_ptr() + WARPS * 2 * odd + self.eighth(group)
            cute.make_tensor(at, cute.make_layout(1))[0] = filled
            word, away = cute.make_rmem_tensor(1, Int32), self.away(storage)
            word[0] = filled
            barrier = storage.full.data_ptr() + odd * SLABS + self.rope_slab
            bits = cute.recast_tensor(word, Float32)[0]
            store_counted(Int32(at.toint()) + away, Int32(barrier.toint()) + away, bits)

    @cute.jit
    def tell_of(self, full, odd, told: cutlass.Constexpr):
        """Products may read this warp's rows of some slabs, and what its like over there sends."""
        cute.arch.sync_warp()
        lane = cute.arch.lane_idx()
        at = self.slab(told[0], odd) + lane
        for k in range_constexpr(1, len(told)):
            at = self.slab(told[k], odd) if lane == k else at
        if lane < len(told):
            size = Int32(TOKENS * ROW)
            if const_expr(self.values in told):  # beside the rotary values come the marks
                size = size + (Int32(4) if at == self.rope_slab else Int32(0))
            cute.arch.mbarrier_arrive_and_expect_tx(full + at, size)

    # ---- consumer warpgroups ---------------------------------------------------------------
    def views(self, storage, scale_log2, side):
        """Views of one side, with what is filled of both tiles: [2, 8] words of 8 bits."""
        marks = cute.make_layout((2, 2 * WARPS), stride=(2 * WARPS, 1))
        return super().views(storage, scale_log2, side)._replace(
            filled=storage.filled.get_tensor(marks)
        )


@cute.jit
def hide_apart(wg, tile):
    """Hide the places of a tile that no token fills."""
    odd = tile & 1
    words = [wg.filled[odd, i] for i in range(2 * WARPS)]
    both = words[0]
    for i in range_constexpr(1, 2 * WARPS):
        both = both & words[i]
    if both != (1 << TOKENS) - 1:
        for i in range_constexpr(cute.size(wg.score)):
            filled = (words[i // 4] >> (2 * (wg.lane % 4) + i % 2)) & 1
            wg.score[i] = wg.score[i] if filled == 1 else -Float32.inf
