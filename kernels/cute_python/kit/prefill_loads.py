"""Loads of prefill over lists: a CTA's work, its barriers, and what its producers send for.

Each half of a tile has a barrier at which the asynchronous copies of all producer threads arrive by
themselves once they are done, so that no producer ever waits for bytes: halves are sent for in the
order in which their places come free, four of them at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.merged import MergedKernel
from mla_var3.kernel.cute_python.kit.slabs import KEYS, ROPE_SLAB, ROWS, SLAB_BYTES, SLABS
from mla_var3.kernel.cute_python.kit.sparse import TOKENS, WARPS

#: Halves of the two tiles, whose places are given back: ``Free``'s first four, in that order.
HALVES = 4
#: Threads of the producer warps, each of which arrives at the barrier of a half.
PRODUCERS = 32 * WARPS


class RowsWork(NamedTuple):
    """What a CTA needs to know of the work; all of it is uniform."""

    lists: cute.Tensor  # [n, k]
    lengths: cute.Tensor  # [n], how many of each list count, where ``counted``
    counted: Int32
    first: Int32  # list
    step: Int32
    count: Int32  # of all lists
    block: Int32  # row tile
    heads: Int32


class PrefillLoads(MergedKernel):
    """What a CTA takes, and how it comes into shared memory."""

    rings = HALVES

    @cute.jit
    def work_of(self, where, sums):
        """The work of this CTA."""
        lists, lengths, counted = where
        heads = sums.shape[1]
        groups = cute.ceil_div(heads, ROWS)
        cta, ctas = cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
        return RowsWork(
            lists, lengths, counted, cta // groups, ctas // groups, lists.shape[0],
            cta % groups, heads,
        )  # fmt: skip

    @cute.jit
    def init_barriers(self, storage, warp_index):
        """All barriers; at those of a half each producer thread arrives, and who marks its tile."""
        if warp_index == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(2):
                    cute.arch.mbarrier_init(storage.q_full.data_ptr() + i, 1)
                for i in range_constexpr(HALVES):
                    marks = WARPS if self.first(i // 2, i % 2) else 0
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, PRODUCERS + marks)
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, 4)
                self.epilogue.init(storage)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

    def first(self, odd, right):
        """Whether a half is the first one of its tile that is sent for in a pair."""
        return odd == right

    @cute.jit
    def length(self, work, sequence):
        """How many of a list count."""
        most = Int32(work.lists.shape[1])
        if work.counted != 0:
            most = cutlass.max(cutlass.min(work.lengths[sequence], most), 0)
        return most

    @cute.jit
    def span(self, work, length):
        """First tile of a list, and one past its last; one in which all is hidden may follow."""
        return Int32(0), cute.ceil_div(length, KEYS)

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def gather(self, storage, cache, work, group):
        """One warp: a quarter of the tokens of each tile; of a token eight lanes take 128 bytes."""
        lane = cute.arch.lane_idx()
        octet, number = lane // 8, lane % 8
        memory = cute.recast_ptr(storage.kv.data_ptr(), dtype=Uint8).toint()
        near = memory + (group * TOKENS + octet) * 128 + PIECE * (number ^ octet)
        into = near, near ^ (4 * PIECE)  # rows of even and of odd fours, as the swizzle has them
        found = cute.make_rmem_tensor(2, Int32)
        start, _ = self.span(work, self.length(work, work.first))
        found[0] = self.look(work, work.first, start, group)
        found[1] = self.look(work, work.first, start + 1, group)
        evens, odds = Int32(0), Int32(0)  # tiles before this list
        for sequence in cutlass.range(work.first, work.count, work.step, unroll=1):
            length = self.length(work, sequence)
            start, stop = self.span(work, length)
            length, tiles = cutlass.min(length, stop * KEYS), cutlass.max(stop - start, 1)
            pairs = (tiles + 1) // 2
            for p in cutlass.range(pairs, unroll=1):
                tile = start + 2 * p
                even = self.token(cache, found[0], self.place(tile, group), length)
                odd = self.token(cache, found[1], self.place(tile + 1, group), length)
                ends = p + 1 == pairs
                following = cutlass.min(sequence + work.step, work.count - 1)
                following = following if ends else sequence
                ahead = Int32(0) if ends else tile + 2
                found[0] = self.look(work, following, ahead, group)
                found[1] = self.look(work, following, ahead + 1, group)
                paired = 2 * p + 1 < tiles
                phase, odd_phase = ((evens + p) & 1) ^ 1, ((odds + p) & 1) ^ 1
                self.fetch(storage, cache, even, into, 0, 0, phase, group)
                if paired & (p > 0):  # the order in which places come free within a list
                    self.fetch(storage, cache, odd, into, 1, 1, odd_phase, group)
                self.fetch(storage, cache, even, into, 0, 1, phase, group)
                if paired:
                    if p == 0:
                        self.fetch(storage, cache, odd, into, 1, 1, odd_phase, group)
                    self.fetch(storage, cache, odd, into, 1, 0, odd_phase, group)
            evens, odds = evens + pairs, odds + tiles // 2

    @cute.jit
    def look(self, work, sequence, tile, group):
        """Begin to read the lane's place of a tile."""
        place = cutlass.min(self.place(tile, group), work.lists.shape[1] - 1)
        return work.lists[sequence, place]

    @cute.jit
    def token(self, cache, found, place, length):
        """The token that was read; -1 where there is none."""
        here = (place < length) & (found >= 0) & (found < cache.shape[1])
        return found if here else Int32(-1)

    @cute.jit
    def fetch(
        self,
        storage,
        cache,
        token,
        into,
        odd: cutlass.Constexpr,
        right: cutlass.Constexpr,
        phase,
        group,
    ):
        """Send for half a tile once its place is free; zeros where no token is."""
        half, lane = 2 * odd + right, cute.arch.lane_idx()
        cute.arch.mbarrier_wait(storage.free.data_ptr() + half, phase)
        slabs = self.slabs_of(right)
        for i in range_constexpr(TOKENS // 4):
            which = cute.arch.shuffle_sync(token, 4 * i + lane // 8)
            bytes_ = Int32(PIECE) if which >= 0 else Int32(0)
            row = cache[0, cutlass.max(which, 0), None].iterator.toint()
            source = Int64(row) + Int64(PIECE) * (lane % 8)
            lines = [
                "cp.async.cg.shared.global.L2::128B "
                f"[{{$r0}}+{(odd * SLABS + slab) * SLAB_BYTES + 512 * i}], "
                f"[{{$r1}}+{128 * slab}], {PIECE}, {{$r2}};"
                for slab in slabs
            ]
            cute.arch.inline_ptx(" ".join(lines), read_only_args=[into[i % 2], source, bytes_])
        full = storage.full.data_ptr() + half
        cute.arch.cp_async_mbarrier_arrive_noinc(full)
        if const_expr(self.first(odd, right)):
            self.mark(storage, token, odd, group, lane)
            if lane == 0:
                cute.arch.mbarrier_arrive(full)

    def slabs_of(self, right):
        """Slabs of a half; the rotary one goes with the right."""
        rope = (ROPE_SLAB,) if right and self.rope else ()
        return (*range(4 * right, 4 * right + 4), *rope)

    # ---- queries ---------------------------------------------------------------------------
    @cute.jit
    def ask(self, storage, loads, work, sequence, rope: cutlass.Constexpr):
        """Send for queries of a list, if there is one; by the first warp."""
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if (warp == 0) & (sequence < work.count):
            self.ask_slabs(loads, work.block, sequence, storage.q_full.data_ptr() + int(rope), rope)

    @cute.jit
    def ask_slabs(self, loads, block, sequence, full, rope: cutlass.Constexpr):
        """The latent slabs of a list's queries, or the rotary one, under one barrier."""
        first, count = (ROPE_SLAB, 1) if const_expr(rope) else (0, ROPE_SLAB)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, count * SLAB_BYTES)
        for j in range_constexpr(count):
            loads.issue(first + j, block, sequence, first + j, full)
