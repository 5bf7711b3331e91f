"""Eight producer warps, each of which holds its eight tokens of the next tile in registers.

As ``window``, with twice as many warps: while one waits for what it has under way, the other one
of its scheduler converts. Four lanes have a token. Each looks its token up, and has the address,
the scales and the pieces of it: nothing passes between lanes.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float8E4M3FN, Float16, Float32, Int32, Int64, Uint8, range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.list_window import ListWindowKernel, Model1Kernel
from mla_var3.kernel.cute_python.kit.merged import LINE
from mla_var3.kernel.cute_python.kit.products import SMEM, output_mma
from mla_var3.kernel.cute_python.kit.slabs import (
    HALF,
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLAB_BYTES,
    SLABS,
    SlabLoads,
    shared_slabs,
)
from mla_var3.kernel.cute_python.kit.warpgroups import halves
from mla_var3.kernel.cute_python.kit.window import WindowKernel, at_address

#: Producer warps, tokens of each, lanes of a token.
WARPS, TOKENS, LANES = 8, 8, 4
#: Bytes of a row of a slab.
SLAB_ROW = 128
#: Columns of a product with weights: twice as many have operands that 128 registers, which a thread
#: of 512 begins with, do not hold, and the assembler refuses them.
WIDTH = 128


class Ahead(enum.IntEnum):
    """Bits of what is known of this tile, and, each twice as high, of the next and the one after.

    Those of the tile that is looked up next stand apart.
    """

    BEGINS, PAST = 1, 1 << 4  # it is the first of its list; there is no such tile
    NEW, OVER, APART = 1 << 16, 1 << 20, 14
    KEPT, MOVED, THIRD = 0x77, 0x33, 0x44


class Held(NamedTuple):
    """Registers of a lane, whose token is that of its three neighbors too."""

    looked: cute.Tensor  # what a list has, and what ``read`` says of it
    cursor: cute.Tensor  # where lists are looked up: list, tile, one past its last, length
    ahead: cute.Tensor  # which of the next tiles begin a list, and which there are not
    # Bit 0: this tile is an odd one. 1 and 2: parities of how many even and odd ones have been
    # filled. 3: the next tile's token is there. The others: lists that have been begun.
    ring: cute.Tensor
    further: cute.Tensor  # where the token found last begins; 0 where there is none
    apart: cute.Tensor  # how far from there its scales are
    away: cute.Tensor  # and those of the next tile's token from where it begins
    row: cute.Tensor  # where the lane's pieces of the next tile's token begin
    pieces: cute.Tensor  # [16, pieces] bytes of it
    words: cute.Tensor  # its scales as they come
    scales: cute.Tensor  # those of this tile's token in fp16, in the order of conversion
    mask: cute.Tensor  # all ones where this tile's token is there


class EightsKernel(WindowKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    registers = (192, 64)
    warps, threads = WARPS, CONSUMERS + 32 * WARPS
    #: Words of scales per token, and pieces of a slab.
    words, steps = 4, 1
    #: The slab that is the same in both orders.
    fixed = None
    #: Columns of a product with weights, and pieces of rotary values in registers.
    width, ropes = WIDTH, 0

    def __init__(self, *settings):
        super().__init__(*settings)
        self.hide = hide_missing

    # ---- producer warps --------------------------------------------------------------------
    def window(self):
        """Registers of a lane."""
        return Held(
            *(cute.make_rmem_tensor(n, Int32) for n in (2, 4, 1, 1)),
            cute.make_rmem_tensor(1, Int64),
            *(cute.make_rmem_tensor(1, Int32) for _ in range(2)),
            cute.make_rmem_tensor(1, Int64),
            cute.make_rmem_tensor(cute.make_layout((PIECE, self.values + self.ropes)), Uint8),
            cute.make_rmem_tensor(self.words, Int32),
            cute.make_rmem_tensor(8 // self.each, Float16),
            cute.make_rmem_tensor(1, Int32),
        )

    @cute.jit
    def gather(self, storage, q_tensors, caches, work, group):
        """One warp: an eighth of the tokens of each tile, of all lists in one loop."""
        s_q = cute.recast_tensor(shared_slabs(storage.q, Float16, SLABS), BFloat16)
        q_loads, held = SlabLoads(*q_tensors, s_q), self.window()
        held.ahead[0], held.ring[0] = Int32(0), Int32(0)
        self.begin_list(held, work, work.first)
        self.look(held, work, caches, group)
        self.find(held, caches)
        self.look(held, work, caches, group)
        self.begin_next(held, work, caches, group)
        self.look(held, work, caches, group)
        for p in range_constexpr(self.values):
            self.fetch(held, p, Int32(0))
        self.fetch_scales(held)
        self.fetch_rope(storage, held, Int32(0), group)
        while (held.ahead[0] & Ahead.PAST) == 0:
            begins = held.ahead[0] & Ahead.BEGINS
            if begins != 0:
                taken = held.ring[0] >> 4
                sequence, parity = work.first + taken, (taken & 1) ^ 1
                self.queries.load(storage, q_loads, work.block, sequence, parity, group)
                held.ring[0] = held.ring[0] + 16
            odd = Int32(0) if begins != 0 else (held.ring[0] & 1) ^ 1
            held.ring[0] = (held.ring[0] ^ (2 << odd)) & -2 | odd
            self.convert_tile(storage, held, work, caches, group)

    # ---- lists -----------------------------------------------------------------------------
    def eighth(self, group):
        """Which eighth of a tile's tokens a warp has."""
        return group

    def place(self, tile, group):
        """Where in its list a lane looks."""
        return tile * KEYS + self.eighth(group) * TOKENS + cute.arch.lane_idx() // LANES

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
    def find(self, window, caches):
        """Where the lane's token and its scales begin; it is on its way to L2."""
        here, row, scales = self.locate(caches, window.looked)
        window.further[0] = row if here else Int64(0)
        window.apart[0] = Int32(scales - row) if here else Int32(0)
        for i in range_constexpr(-(-self.row_bytes // LINE // LANES)):
            line = (i * LANES + cute.arch.lane_idx() % LANES) * LINE
            if here & (line < self.row_bytes):
                at = row + Int64(line)
                cute.arch.inline_ptx("prefetch.global.L2 [{$r0}];", read_only_args=[at])

    def any_row(self, caches):
        """Where there are bytes to read for a place without a token."""
        return Int64(caches.iterator.toint())

    @cute.jit
    def begin_next(self, window, work, caches, group):
        """Begin with the tokens found last: their scales, and where the lane's pieces are."""
        row = window.further[0]
        window.ring[0] = (window.ring[0] & -9) | (Int32(8) if row != 0 else Int32(0))
        row = row if row != 0 else self.any_row(caches)
        window.row[0] = row + Int64(PIECE) * (cute.arch.lane_idx() % LANES)
        window.away[0] = window.apart[0]
        self.find(window, caches)

    # ---- scales ----------------------------------------------------------------------------
    @cute.jit
    def fetch_scales(self, window):
        """Begin to read the next tile's scales: the last of it, since they take registers more."""
        at = window.row[0] - Int64(PIECE) * (cute.arch.lane_idx() % LANES) + window.away[0]
        cute.autovec_copy(at_address(at, Int32, self.words, 4 * self.words), window.words)

    @cute.jit
    def take_scales(self, window, odd):
        """The scales of the tile that is begun with, those of its near half first."""
        window.mask[0] = Int32(-1) if (window.ring[0] & 8) != 0 else Int32(0)
        exact = self.exact(window.words)
        found = cute.make_rmem_tensor(cute.size(window.scales), Float16)
        for i in range_constexpr(cute.size(found)):
            found[i] = exact[i].to(Float16)
        pairs, into = cute.recast_tensor(found, Int32), cute.recast_tensor(window.scales, Int32)
        half = cute.size(pairs) // 2
        for i in range_constexpr(2 * half):
            pairs[i] = pairs[i] & window.mask[0]
        for i in range_constexpr(half):
            into[i] = pairs[half + i] if odd == 1 else pairs[i]
            into[half + i] = pairs[i] if odd == 1 else pairs[half + i]

    # ---- pieces ----------------------------------------------------------------------------
    @cute.jit
    def fetch(self, window, p: cutlass.Constexpr, odd):
        """Begin to read a piece."""
        at = window.row[0] + Int64(64 * self.slab(p, odd))
        cute.autovec_copy(at_address(at, Uint8, PIECE, PIECE), window.pieces[None, p])

    def landing(self, storage, odd, group, i):
        """Where rotary values come to: [16] bytes."""
        lane = cute.arch.lane_idx()
        row, number = self.eighth(group) * TOKENS + lane // LANES, LANES * i + lane % LANES
        return self.piece(self.pieces(storage), odd * SLABS + ROPE_SLAB, row, number)

    @cute.jit
    def fetch_rope(self, storage, window, odd, group):
        """Send for the rotary values."""
        atom = cute.make_copy_atom(
            cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL),
            Uint8,
            num_bits_per_copy=8 * PIECE,
        )
        for i in range_constexpr(2):
            at = window.row[0] + Int64(self.rope_bytes + LANES * PIECE * i)
            came = at_address(at, Uint8, PIECE, PIECE)
            cute.copy(atom, came, self.landing(storage, odd, group, i))
        cute.arch.cp_async_commit_group()

    @cute.jit
    def convert_tile(self, storage, window, work, caches, group):
        """A warp's tokens to fp16, slab by slab; the next tile's follow them into registers."""
        odd, free = window.ring[0] & 1, storage.free.data_ptr()
        full = storage.full.data_ptr() + odd * SLABS
        cute.arch.mbarrier_wait(free + 3 * odd, self.parity(window, odd))
        self.take_scales(window, odd)  # all that is under way has come
        self.mark_tokens(storage, window, odd, group)
        for j in range_constexpr(self.values):
            if cutlass.const_expr(j == self.near):
                cute.arch.mbarrier_wait(free + 1 + odd, self.parity(window, odd))
            self.convert_piece(storage, window, odd, group, j)
            # Not before: what is loaded ahead of its turn takes registers that there are not.
            cute.arch.sync_warp()
            if cutlass.const_expr(j == 1):
                self.begin_next(window, work, caches, group)
            # A piece behind, so that registers of one are free.
            if cutlass.const_expr(j > 0):
                self.fetch(window, j - 1, self.next_odd(window))
            for told in self.told[:-1]:
                if cutlass.const_expr(j == told[-1]):
                    self.tell_of(full, odd, told)
        self.fetch(window, self.values - 1, self.next_odd(window))
        cute.arch.cp_async_wait_group(0)
        self.put_rope(storage, window, odd, group)
        self.tell_of(full, odd, self.told[-1])
        self.fetch_scales(window)
        if (window.ahead[0] & (2 * Ahead.PAST)) == 0:
            odd = self.next_odd(window)
            self.await_rope(free, odd, self.parity(window, odd) ^ 1)
            self.fetch_rope(storage, window, odd, group)
        self.look(window, work, caches, group)

    @cute.jit
    def parity(self, window, odd):
        """Parity of how many even or odd tiles have been filled, this one counted."""
        return (window.ring[0] >> (1 + odd)) & 1

    @cute.jit
    def next_odd(self, window):
        """Whether the next tile is an odd one: not where it begins a list."""
        follows = (window.ahead[0] & (2 * Ahead.BEGINS)) == 0
        return cutlass.select_(follows, (window.ring[0] & 1) ^ 1, Int32(0))

    @cute.jit
    def mark_tokens(self, storage, window, odd, group):
        """Say which of this warp's places a token fills."""
        lane = cute.arch.lane_idx()
        mine = cute.arch.shuffle_sync(window.mask[0], lane * LANES % 32)
        filled = cute.arch.vote_ballot_sync(mine != 0)
        if lane == 0:
            self.put_mark(storage, filled & ((1 << TOKENS) - 1), odd, self.eighth(group))

    @cute.jit
    def put_mark(self, storage, filled, odd, eighth):
        """A byte of bits."""
        at = cute.recast_ptr(storage.filled.data_ptr(), dtype=Uint8)
        cute.make_tensor(at, cute.make_layout(2 * WARPS))[WARPS * odd + eighth] = Uint8(filled)

    def begin_of(self, storage, odd, group, j):
        """Where in shared memory the lane's part of a slab of a tile begins."""
        lane = cute.arch.lane_idx()
        token, number = lane // LANES, 2 * (lane % LANES)
        row = (self.eighth(group) * TOKENS + token) * SLAB_ROW + (number ^ token) * PIECE
        # Of an odd tile the right half comes first.
        turned = odd * (SLABS + 4) if j < self.near else odd * (SLABS - 4)
        if self.fixed == j:
            turned = odd * SLABS
        return Int32(storage.kv.data_ptr().toint()) + row + (turned + j) * SLAB_BYTES

    @cute.jit
    def convert_piece(self, storage, window, odd, group, j: cutlass.Constexpr):
        """A piece to its slab: its halves lie side by side, in an order that the swizzle says."""
        raw, begin = self.alive(window.pieces[None, j], window), self.begin_of(storage, odd, group, j)
        slab = odd * SLABS + self.slab(j, odd)
        values = cute.make_rmem_tensor(PIECE, Float16)
        factor = window.scales[j // self.each]
        values.store(cute.recast_tensor(raw, Float8E4M3FN).load().to(Float16) * factor)
        bits = cute.recast_tensor(values, Uint8)
        for n in range_constexpr(2):
            part = cute.local_tile(bits, (PIECE,), (n,))
            self.put_piece(storage, part, begin ^ (n * PIECE), slab)

    @cute.jit
    def put_piece(self, storage, part, begin, slab):
        """Sixteen bytes of a slab to an address in shared memory."""
        at = cute.make_ptr(Uint8, begin, cute.AddressSpace.smem, assumed_align=PIECE)
        cute.autovec_copy(part, cute.make_tensor(at, cute.make_layout(PIECE)))

    @cute.jit
    def alive(self, raw, window):
        """A piece; zeros where no token is."""
        found = cute.make_rmem_tensor(PIECE, Uint8)
        words, into = cute.recast_tensor(raw, Int32), cute.recast_tensor(found, Int32)
        for n in range_constexpr(4):
            into[n] = words[n] & window.mask[0]
        return found

    # ---- consumer warpgroups ---------------------------------------------------------------
    def views(self, storage, scale_log2, side):
        """Views of one side, with narrower products, and with what is filled."""
        wg = super().views(storage, scale_log2, side)
        slabs = shared_slabs(storage.kv, self.dtype, 2 * SLABS)
        places, keys = self.weight_places(storage, slabs), halves(slabs, self.dtype, side)
        into = output_mma(self.dtype, SMEM, self.width).get_slice(cute.arch.thread_idx()[0] % 128)
        return wg._replace(
            v=tuple(into.make_fragment_B(into.partition_B(x)) for x in keys),
            peer_weights=into.make_fragment_A(into.partition_A(places[1 - side])),
            out=into.make_fragment_C(into.partition_shape_C((ROWS, HALF))),
            filled=self.marks(storage),
        )

    def marks(self, storage):
        """What is filled of both tiles: [2, 2] words of 32 bits."""
        return storage.filled.get_tensor(cute.make_layout((2, 2), stride=(2, 1)))


@cute.jit
def hide_missing(wg, tile):
    """Hide the places of a tile that no token fills."""
    odd = tile & 1
    words = [wg.filled[odd, i] for i in range(2)]
    if (words[0] & words[1]) != -1:
        for i in range_constexpr(cute.size(wg.score)):
            column = 8 * (i // 4) + 2 * (wg.lane % 4) + i % 2
            filled = (words[i // 16] >> (column % 32)) & 1
            wg.score[i] = wg.score[i] if filled == 1 else -Float32.inf


class ListEightsKernel(EightsKernel, ListWindowKernel):
    """Tokens of 656 bytes: of one list, of lists of two caches, or of a page table."""

    def any_row(self, caches):
        """Where there are bytes to read for a place without a token."""
        return Int64(caches[0].iterator.toint())


class Model1EightsKernel(ListEightsKernel, Model1Kernel):
    """Tokens of 584 bytes: seven slabs of e4m3 values, and rotary values that count as values."""

    words, each, fixed = 2, 1, 3
    told, fenced = ((0, 1, 2), (3,), (4, 5), (6, 7)), (0, 2, 3, 4, 6)

    def exact(self, words):
        """The powers of two that eight bytes stand for."""
        bits = cute.make_rmem_tensor(8, Int32)
        for i in range(8):
            bits[i] = ((words[i // 4] >> (8 * (i % 4))) & 0xFF) << 23
        return cute.recast_tensor(bits, Float32)

    @cute.jit
    def take_scales(self, window, odd):
        """Slab 3 is the fourth in both orders."""
        EightsKernel.take_scales(self, window, odd)
        window.scales[3] = window.scales[7] if odd == 1 else window.scales[3]

    # ---- rotary values ---------------------------------------------------------------------
    @cute.jit
    def fetch_rope(self, storage, window, odd, group):
        """Send for the rotary values: to the place of even tiles, where they are converted from."""
        EightsKernel.fetch_rope(self, storage, window, 0, group)

    @cute.jit
    def put_rope(self, storage, window, odd, group):
        """Rotary values in fp16 to the last slab of the values."""
        pieces, lane = self.pieces(storage), cute.arch.lane_idx()
        row = self.eighth(group) * TOKENS + lane // LANES
        for i in range_constexpr(2):
            came = cute.make_rmem_tensor(PIECE, Uint8)
            cute.autovec_copy(self.landing(storage, 0, group, i), came)
            raw = self.alive(came, window)
            values = cute.make_rmem_tensor(PIECE // 2, Float16)
            values.store(cute.recast_tensor(raw, BFloat16).load().to(Float32).to(Float16))
            number = LANES * i + lane % LANES
            out = self.piece(pieces, odd * SLABS + self.rope_slab, row, number)
            cute.autovec_copy(cute.recast_tensor(values, Uint8), out)
