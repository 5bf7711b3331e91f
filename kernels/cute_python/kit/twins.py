"""Two CTAs with the same lists, each of which converts half of a tile's tokens for both.

As ``eights``, with four producer warps per CTA, which write to the shared memory of both CTAs of a
cluster. Rotary values pass through registers too.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import BFloat16, Float16, Float32, Int32, Int64, Uint8, range_constexpr

from mla_var3.kernel.cute_python.kit.alternate import AlternateEpilogue
from mla_var3.kernel.cute_python.kit.dsmem import remote_address, store_counted
from mla_var3.kernel.cute_python.kit.eights import (
    LANES,
    TOKENS,
    EightsKernel,
    ListEightsKernel,
    Model1EightsKernel,
)
from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import HALF, SLAB_BYTES, SLABS
from mla_var3.kernel.cute_python.kit.window import at_address

#: Producer warps of a CTA.
WARPS = 4


class TwinsEpilogue(AlternateEpilogue):
    """Shared memory beside the slabs: a word for each warp's tokens of either tile."""

    def fields(self):
        """Further fields of shared memory, before the slabs."""
        return {**super().fields(), "filled": cute.struct.MemRange[Int32, 4 * WARPS]}


class TwinsKernel(EightsKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    registers = (192, 120)
    warps, threads, ctas = WARPS, CONSUMERS + 32 * WARPS, 2
    width, ropes = HALF, 2
    #: What comes from the other CTA is told of by itself, slab by slab.
    fenced = tuple(range(SLABS))

    def __init__(self, *settings):
        super().__init__(*settings)
        self.hide, self.epilogue = hide_apart, TwinsEpilogue(1)

    def eighth(self, group):
        """Which eighth of a tile's tokens a warp has."""
        return group + WARPS * self.schedule.rank()

    @cute.jit
    def away(self, storage):
        """How far what lies here is from where it lies in the other CTA."""
        here = storage.kv.data_ptr()
        return remote_address(here, self.schedule.rank() ^ 1) - Int32(here.toint())

    @cute.jit
    def put_piece(self, storage, part, begin, slab):
        """Sixteen bytes of a slab to an address in the shared memory of both."""
        EightsKernel.put_piece(self, storage, part, begin, slab)
        words, away = cute.recast_tensor(part, Float32), self.away(storage)
        barrier = Int32((storage.full.data_ptr() + slab).toint()) + away
        store_counted(begin + away, barrier, *[words[i] for i in range(4)])

    @cute.jit
    def put_mark(self, storage, filled, odd, eighth):
        """Bits to both; the last slab's barrier counts them."""
        at, away = storage.filled.data_ptr() + WARPS * 2 * odd + eighth, self.away(storage)
        cute.make_tensor(at, cute.make_layout(1))[0] = filled
        word = cute.make_rmem_tensor(1, Int32)
        word[0] = filled
        barrier = Int32((storage.full.data_ptr() + odd * SLABS + self.rope_slab).toint()) + away
        store_counted(Int32(at.toint()) + away, barrier, cute.recast_tensor(word, Float32)[0])

    @cute.jit
    def tell_of(self, full, odd, told):
        """Products may read this warp's rows of some slabs; the first warp says what else comes."""
        cute.arch.sync_warp()
        lane = cute.arch.lane_idx()
        at = self.slab(told[0], odd) + lane
        for k in range_constexpr(1, len(told)):
            at = self.slab(told[k], odd) if lane == k else at
        if lane < len(told):
            if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == CONSUMERS // 32:
                size = SLAB_BYTES // 2 + (4 * WARPS if at == self.rope_slab else 0)
                cute.arch.mbarrier_arrive_and_expect_tx(full + at, size)
            else:
                cute.arch.mbarrier_arrive(full + at)

    def marks(self, storage):
        """What is filled of both tiles: [2, 8] words of 8 bits."""
        return storage.filled.get_tensor(cute.make_layout((2, 2 * WARPS), stride=(2 * WARPS, 1)))

    # ---- rotary values ---------------------------------------------------------------------
    @cute.jit
    def await_rope(self, free, odd, phase):
        """Nothing is sent for that lands in shared memory."""

    @cute.jit
    def fetch_rope(self, storage, window, odd, group):
        """Begin to read the rotary values."""
        for i in range_constexpr(2):
            at = window.row[0] + Int64(self.rope_bytes + LANES * PIECE * i)
            into = window.pieces[None, self.values + i]
            cute.autovec_copy(at_address(at, Uint8, PIECE, PIECE), into)

    @cute.jit
    def put_rope(self, storage, window, odd, group):
        """Rotary values to their slab, as they are."""
        at = storage.free.data_ptr() + Free.EVEN_ROPE + odd
        cute.arch.mbarrier_wait(at, self.parity(window, odd))
        for i in range_constexpr(2):
            part = window.pieces[None, self.values + i]
            slab = odd * SLABS + self.rope_slab
            self.put_piece(storage, part, self.rope_place(storage, odd, group, i), slab)

    def rope_place(self, storage, odd, group, i):
        """Where in shared memory a lane's rotary values of a tile lie."""
        token, number = cute.arch.lane_idx() // LANES, LANES * i + cute.arch.lane_idx() % LANES
        row = (self.eighth(group) * TOKENS + token) * 128 + (number ^ token) * PIECE
        slab = odd * SLABS + self.rope_slab
        return Int32(storage.kv.data_ptr().toint()) + row + slab * SLAB_BYTES


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


class ListTwinsKernel(TwinsKernel, ListEightsKernel):
    """Tokens of 656 bytes: of one list, of lists of two caches, or of a page table."""


class Model1TwinsKernel(TwinsKernel, Model1EightsKernel):
    """Tokens of 584 bytes: seven slabs of e4m3 values, and rotary values that count as values."""

    fenced = tuple(range(SLABS))

    @cute.jit
    def put_rope(self, storage, window, odd, group):
        """Rotary values in fp16 to the last slab of the values."""
        for i in range_constexpr(2):
            raw = self.alive(window.pieces[None, self.values + i], window)
            values = cute.make_rmem_tensor(PIECE // 2, Float16)
            values.store(cute.recast_tensor(raw, BFloat16).load().to(Float32).to(Float16))
            part = cute.recast_tensor(values, Uint8)
            slab = odd * SLABS + self.rope_slab
            self.put_piece(storage, part, self.rope_place(storage, odd, group, i), slab)
