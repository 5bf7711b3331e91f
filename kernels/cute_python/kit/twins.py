"""Two CTAs with the same lists, each of which converts half of a tile's tokens for both.

As ``eights``, with four producer warps per CTA, which write to the shared memory of both CTAs of a
cluster. Rotary values pass through registers too.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import BFloat16, Float16, Float32, Int32, Int64, Uint8, range_constexpr
from cutlass._mlir.dialects import nvvm

from mla_var3.kernel.cute_python.kit.dsmem import remote_address, store_remote
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


class TwinsKernel(EightsKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    registers = (192, 120)
    #: Warps of both CTAs arrive at the barriers of slabs.
    warps, threads, ctas = 2 * WARPS, CONSUMERS + 32 * WARPS, 2
    width, ropes, fenced = HALF, 2, ()

    def eighth(self, group):
        """Which eighth of a tile's tokens a warp has."""
        return group + WARPS * self.schedule.rank()

    @cute.jit
    def away(self, storage):
        """How far what lies here is from where it lies in the other CTA."""
        here = storage.kv.data_ptr()
        return remote_address(here, self.schedule.rank() ^ 1) - Int32(here.toint())

    @cute.jit
    def put_piece(self, storage, part, begin):
        """Sixteen bytes to an address in the shared memory of both."""
        EightsKernel.put_piece(self, storage, part, begin)
        words = cute.recast_tensor(part, Float32)
        store_remote(begin + self.away(storage), *[words[i] for i in range(4)])

    @cute.jit
    def put_mark(self, storage, filled, place):
        """A byte of bits to both."""
        EightsKernel.put_mark(self, storage, filled, place)
        here = Int32(storage.filled.data_ptr().toint()) + place
        cute.arch.inline_ptx(
            "st.shared::cluster.u8 [{$r0}], {$r1};",
            read_only_args=[here + self.away(storage), filled],
        )

    @cute.jit
    def tell_of(self, full, odd, told):
        """Products of both may read this warp's rows of some slabs."""
        cute.arch.fence_proxy("async.shared", space="cluster")
        cute.arch.sync_warp()
        lane = cute.arch.lane_idx()
        at = self.slab(told[0], odd) + lane
        for k in range_constexpr(1, len(told)):
            at = self.slab(told[k], odd) if lane == k else at
        if lane < len(told):
            cute.arch.mbarrier_arrive(full + at)
            scope = nvvm.MemScopeKind.CLUSTER
            cute.arch.mbarrier_arrive(full + at, self.schedule.rank() ^ 1, scope=scope)

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
            self.put_piece(storage, part, self.rope_place(storage, odd, group, i))

    def rope_place(self, storage, odd, group, i):
        """Where in shared memory a lane's rotary values of a tile lie."""
        token, number = cute.arch.lane_idx() // LANES, LANES * i + cute.arch.lane_idx() % LANES
        row = (self.eighth(group) * TOKENS + token) * 128 + (number ^ token) * PIECE
        slab = odd * SLABS + self.rope_slab
        return Int32(storage.kv.data_ptr().toint()) + row + slab * SLAB_BYTES


class ListTwinsKernel(TwinsKernel, ListEightsKernel):
    """Tokens of 656 bytes: of one list, of lists of two caches, or of a page table."""


class Model1TwinsKernel(TwinsKernel, Model1EightsKernel):
    """Tokens of 584 bytes: seven slabs of e4m3 values, and rotary values that count as values."""

    fenced = ()

    @cute.jit
    def put_rope(self, storage, window, odd, group):
        """Rotary values in fp16 to the last slab of the values."""
        for i in range_constexpr(2):
            raw = self.alive(window.pieces[None, self.values + i], window)
            values = cute.make_rmem_tensor(PIECE // 2, Float16)
            values.store(cute.recast_tensor(raw, BFloat16).load().to(Float32).to(Float16))
            part = cute.recast_tensor(values, Uint8)
            self.put_piece(storage, part, self.rope_place(storage, odd, group, i))
