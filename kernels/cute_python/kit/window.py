"""Producers that read tokens into registers, a whole tile ahead of what they convert.

A piece is what a warp reads at once: 64 values of eight tokens. As soon as one is converted and in
its slab, its registers take the one of the next tile, across lists. So bytes are under way while
others are converted, and while the warp waits for a slab to come free. A warp waits for all that it
has under way at once, since the assembler gives all loads one scoreboard: so it must not wait in
the middle of a tile, and all of a tile has to be in registers. Rotary values, for which there is no
room, go to shared memory at once, and stay as they are.
"""

from __future__ import annotations

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
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.merged import LINE
from mla_var3.kernel.cute_python.kit.resident import ResidentKernel
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    ROPE_SLAB,
    SLABS,
    SlabLoads,
    shared_slabs,
)
from mla_var3.kernel.cute_python.kit.sparse import ROPE_BYTES, ROW_BYTES, SCALES, TOKENS, WARPS

#: Tokens of a piece of values, and of a piece of rotary values.
EIGHT, FOUR = 8, 4


@cute.jit
def shuffled(value, lane):
    """64 bits that a lane holds."""
    low, high = Int32(value & Int64(0xFFFFFFFF)), Int32(value >> 32)
    low, high = cute.arch.shuffle_sync(low, lane), cute.arch.shuffle_sync(high, lane)
    return (Int64(high) << 32) | (Int64(low) & Int64(0xFFFFFFFF))


def at_address(address, dtype, count, align):
    """So many numbers in global memory."""
    pointer = cute.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=align)
    return cute.make_tensor(pointer, cute.make_layout(count))


class Window(NamedTuple):
    """Registers of a lane: of the next tile, and what is looked up of the one after it."""

    looked: cute.Tensor  # what a list has, and what ``read`` says of it
    cursor: cute.Tensor  # where lists are looked up: list, tile, one past its last, length
    further: cute.Tensor  # where the token found last begins, and where its scales do
    mine: cute.Tensor  # where the token of the lane's own place begins
    rows: cute.Tensor  # where the lane's pieces of two tokens begin
    pieces: cute.Tensor  # [16, pieces] bytes
    words: cute.Tensor  # scales of half of the lane's token as they come
    scales: cute.Tensor  # and in fp16
    filled: cute.Tensor  # which places tokens fill: of ``mine``, and of ``further``


class WindowKernel(ResidentKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query.

    Of a tile the half that comes free first is converted first. ``slab`` gives the order.
    """

    #: Of a consumer and of a producer thread.
    registers = (192, 120)
    #: Slabs of values, and how many of them are converted before the other half is waited for.
    values, near = 8, 4
    #: Slabs that share a scale, and words of scales that each of two lanes reads of a token.
    each, words = 2, 2
    #: Slab of the rotary values, and their first byte.
    rope_slab, rope_bytes = ROPE_SLAB, ROPE_BYTES
    #: What products are told of at once, in the order of ``slab``.
    told = (0, 1), (2, 3), (4, 5), (6, 7, 8)
    #: Bytes of a token's row.
    row_bytes = ROW_BYTES
    #: A fence waits for all that its warp has under way: consumers have less.
    fenced = (0, 2, 4, 6, ROPE_SLAB)
    #: Whether a tile's scales are made fp16 before its place is waited for, rather than after that,
    #: when all that a warp has under way has come anyway.
    ahead = True

    def slab(self, j, odd):
        """The slab that is converted as the j-th; the rotary values come last."""
        if j == self.values:
            return self.rope_slab
        if j < self.near:
            return j + 4 * odd
        return j - 4 * odd if j >= 4 else j

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def gather(self, storage, q_tensors, caches, work, group):
        """One warp: a quarter of the tokens of each tile."""
        s_q = cute.recast_tensor(shared_slabs(storage.q, Float16, SLABS), BFloat16)
        q_loads = SlabLoads(*q_tensors, s_q)
        window = Window(
            *(cute.make_rmem_tensor(n, Int32) for n in (2, 4)),
            *(cute.make_rmem_tensor(n, Int64) for n in (2, 1, 2)),
            cute.make_rmem_tensor(cute.make_layout((PIECE, 2 * self.values)), Uint8),
            cute.make_rmem_tensor(self.words, Int32),
            cute.make_rmem_tensor(4 // self.each, Float16),
            cute.make_rmem_tensor(2, Int32),
        )
        self.open(window.cursor, work, work.first)
        self.look(window, work, caches, group)
        self.find(window, caches)
        self.look(window, work, caches, group)
        self.begin_next(window, work, caches, group)
        if const_expr(self.ahead):
            self.pack(window)
        for p in range_constexpr(2 * self.values):
            self.fetch(window, p, Int32(0))
        self.fetch_rope(storage, window, Int32(0), group)
        taken, evens, odds = Int32(0), Int32(0), Int32(0)  # sequences and tiles before this one
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            start, stop, _ = self.schedule.part(work, sequence, work.lengths[sequence])
            self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, group)
            for tile in cutlass.range(start, stop, unroll=1):
                odd = (tile - start) & 1
                evens, odds = evens + (odd ^ 1), odds + odd
                next_odd = odd ^ 1 if tile + 1 < stop else Int32(0)
                phase = odds & 1 if odd == 1 else evens & 1
                next_phase = (odds & 1 if next_odd == 1 else evens & 1) ^ 1
                more = (tile + 1 < stop) | (sequence < work.last)
                where = odd, phase, next_odd, next_phase, more
                self.convert_tile(storage, window, work, caches, where, group)
            taken = taken + 1

    # ---- lists -----------------------------------------------------------------------------
    @cute.jit
    def open(self, cursor, work, sequence):
        """Where lists are looked up: sequence, tile, one past its last, length; none at the end."""
        cursor[0], cursor[1], cursor[2], cursor[3] = sequence, Int32(0), Int32(KEYS), Int32(0)
        if sequence <= work.last:
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            cursor[1], cursor[2], cursor[3] = start, stop, length

    @cute.jit
    def step(self, cursor, work):
        """On to the next tile."""
        cursor[1] = cursor[1] + 1
        if cursor[1] >= cursor[2]:
            self.open(cursor, work, cursor[0] + 1)

    @cute.jit
    def look(self, window, work, caches, group):
        """Begin to read what a list has at the lane's place, and go on to the next tile."""
        cursor = window.cursor
        place, sequence = self.place(cursor[1], group), cutlass.min(cursor[0], work.last)
        self.read(window.looked, work, caches, sequence, cursor[3], place)
        self.step(cursor, work)

    @cute.jit
    def read(self, looked, work, caches, sequence, length, place):
        """What a list has at a place; -1 past its end."""
        looked[0] = Int32(-1)
        if place < cutlass.min(length, work.table.shape[1]):
            looked[0] = work.table[sequence, place]

    @cute.jit
    def find(self, window, caches):
        """Where the lane's token and its scales begin; it is on its way to L2."""
        here, row, scales = self.locate(caches, window.looked)
        window.further[0], window.further[1] = row, scales
        window.filled[1] = cute.arch.vote_ballot_sync(here) & ((1 << TOKENS) - 1)
        half, lines = cute.arch.lane_idx() // TOKENS, -(-self.row_bytes // LINE // 2)
        for i in range_constexpr(lines):
            at = row + Int64(cutlass.min((lines * half + i) * LINE, self.row_bytes - 1))
            if here:
                cute.arch.inline_ptx("prefetch.global.L2 [{$r0}];", read_only_args=[at])

    @cute.jit
    def begin_next(self, window, work, caches, group):
        """Begin with the tokens found last: their scales, and where the lane's pieces are."""
        mine, filled, lane = window.mine, window.filled, cute.arch.lane_idx()
        mine[0], filled[0] = window.further[0], filled[1]
        words = window.further[1] + Int64(4 * self.words) * (lane // TOKENS)
        cute.autovec_copy(at_address(words, Int32, self.words, 4 * self.words), window.words)
        for i in range_constexpr(2):
            row = shuffled(mine[0], EIGHT * i + lane // 4)
            window.rows[i] = row + Int64(PIECE) * (lane % 4)
        self.find(window, caches)
        self.look(window, work, caches, group)

    @cute.jit
    def locate(self, caches, looked):
        """Whether a token is there, where it begins, and where its scales do."""
        page, found = caches.shape[1], looked[0]
        here = (found >= 0) & (found < caches.shape[0] * page)
        place = found if here else Int32(0)
        row = Int64(caches[place // page, place % page, None].iterator.toint())
        return here, row, row + SCALES

    # ---- scales ----------------------------------------------------------------------------
    @cute.jit
    def pack(self, window):
        """The scales of half of the lane's token, in fp16; zeros where there is none."""
        here = (window.filled[0] >> (cute.arch.lane_idx() % TOKENS)) & 1
        exact = self.exact(window.words)
        for i in range_constexpr(cute.size(window.scales)):
            window.scales[i] = (exact[i] if here == 1 else Float32(0.0)).to(Float16)

    def exact(self, words):
        """Scales in fp32."""
        return cute.recast_tensor(words, Float32)

    @cute.jit
    def factors(self, scales, odd):
        """Scales of the lane's rows: [scales of a half, first or second half, row]."""
        count, lane = cute.size(scales), cute.arch.lane_idx()
        found = cute.make_rmem_tensor(cute.make_layout((count, 2, 2)), Float16)
        pairs, into = cute.recast_tensor(scales, Int32), cute.recast_tensor(found, Int32)
        for i in range_constexpr(2):
            for h in range_constexpr(2):
                source = EIGHT * i + lane // 4 + TOKENS * (odd ^ h)
                for n in range_constexpr(count // 2):
                    into[n, h, i] = cute.arch.shuffle_sync(pairs[n], source)
        return found

    # ---- pieces ----------------------------------------------------------------------------
    @cute.jit
    def fetch(self, window, p: cutlass.Constexpr, odd):
        """Begin to read a piece."""
        at = window.rows[p % 2] + Int64(64) * self.slab(p // 2, odd)
        cute.autovec_copy(at_address(at, Uint8, PIECE, PIECE), window.pieces[None, p])

    def landing(self, storage, odd, group, i):
        """Where rotary values come to: [16] bytes, of four tokens."""
        row = group * TOKENS + FOUR * i + cute.arch.lane_idx() // 8
        return self.piece(
            self.pieces(storage), odd * SLABS + ROPE_SLAB, row, cute.arch.lane_idx() % 8
        )

    @cute.jit
    def fetch_rope(self, storage, window, odd, group):
        """Send for the rotary values."""
        lane = cute.arch.lane_idx()
        atom = cute.make_copy_atom(
            cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL),
            Uint8,
            num_bits_per_copy=8 * PIECE,
        )
        for i in range_constexpr(TOKENS // FOUR):
            at = shuffled(window.mine[0], FOUR * i + lane // 8) + self.rope_bytes
            came = at_address(at + Int64(PIECE) * (lane % 8), Uint8, PIECE, PIECE)
            cute.copy(atom, came, self.landing(storage, odd, group, i))
        cute.arch.cp_async_commit_group()

    @cute.jit
    def convert_tile(self, storage, window, work, caches, where, group):
        """A warp's tokens to fp16, slab by slab; the next tile's follow them into registers."""
        odd, phase, next_odd, next_phase, more = where
        free = storage.free.data_ptr()
        full, filled = storage.full.data_ptr() + odd * SLABS, window.filled[0]
        if const_expr(self.ahead):
            factors = self.factors(window.scales, odd)
        cute.arch.mbarrier_wait(free + 3 * odd, phase)
        if const_expr(not self.ahead):
            self.pack(window)
            factors = self.factors(window.scales, odd)
        self.mark_filled(storage, filled, odd, group)
        for j in range_constexpr(self.values):
            if const_expr(j == self.near):
                cute.arch.mbarrier_wait(free + 1 + odd, phase)
            for i in range_constexpr(2):
                self.convert(storage, window, factors, filled, odd, group, 2 * j + i)
                if const_expr(j + i == 0):
                    # All that is under way has come; what is read from here on has a tile's time.
                    self.begin_next(window, work, caches, group)
                self.fetch(window, 2 * j + i, next_odd)
            for told in self.told[:-1]:
                if const_expr(j == told[-1]):
                    self.tell_of(full, odd, told)
        cute.arch.cp_async_wait_group(0)
        self.put_rope(storage, filled, odd, group)
        self.tell_of(full, odd, self.told[-1])
        if more:
            self.await_rope(free, next_odd, next_phase)
            self.fetch_rope(storage, window, next_odd, group)
        if const_expr(self.ahead):
            self.pack(window)

    @cute.jit
    def await_rope(self, free, odd, phase):
        """Wait for the place of the next tile's rotary values."""
        cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + odd, phase)

    @cute.jit
    def put_rope(self, storage, filled, odd, group):
        """Rotary values to where they belong: they are there."""

    @cute.jit
    def mark_filled(self, storage, filled, odd, group):
        """Say which of this warp's places a token fills."""
        if cute.arch.lane_idx() == 0:
            words = storage.filled.get_tensor(cute.make_layout((2, WARPS), stride=(WARPS, 1)))
            words[odd, group] = filled

    @cute.jit
    def convert(self, storage, window, factors, filled, odd, group, p: cutlass.Constexpr):
        """A piece to its slab."""
        pieces, lane, j = self.pieces(storage), cute.arch.lane_idx(), p // 2
        row, slab = EIGHT * (p % 2) + lane // 4, odd * SLABS + self.slab(j, odd)
        raw = self.masked(window.pieces[None, p], filled, row)
        values = cute.make_rmem_tensor(PIECE, Float16)
        factor = self.factor(factors, j, p % 2, odd)
        values.store(cute.recast_tensor(raw, Float8E4M3FN).load().to(Float16) * factor)
        bits = cute.recast_tensor(values, Uint8)
        for n in range_constexpr(2):
            out = self.piece(pieces, slab, group * TOKENS + row, 2 * (lane % 4) + n)
            cute.autovec_copy(cute.local_tile(bits, (PIECE,), (n,)), out)

    @cute.jit
    def masked(self, raw, filled, row):
        """A piece; zeros where no token is."""
        found, here = cute.make_rmem_tensor(PIECE, Uint8), (filled >> row) & 1
        words, into = cute.recast_tensor(raw, Int32), cute.recast_tensor(found, Int32)
        for n in range_constexpr(4):
            into[n] = words[n] if here == 1 else Int32(0)
        return found

    def factor(self, factors, j, i, odd):
        """The scale of a piece."""
        return factors[j % 4 // self.each, j // 4, i]

    @cute.jit
    def tell_of(self, full, odd, told: cutlass.Constexpr):
        """Products may read this warp's rows of some slabs."""
        if const_expr(not self.fenced):
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_warp()
        lane = cute.arch.lane_idx()
        at = self.slab(told[0], odd) + lane
        for k in range_constexpr(1, len(told)):
            at = self.slab(told[k], odd) if lane == k else at
        if lane < len(told):
            cute.arch.mbarrier_arrive(full + at)
