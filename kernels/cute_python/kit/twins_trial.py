"""Trial on the kit of commit 2dee9017, as it was measured: how two CTAs pass on what they convert.

R: whole rows of 128 bytes. W: half rows, as there, without the reloads. B: bulk copies of 1 KB.
A: nothing is passed on, so that values are wrong."""
import cutlass, cutlass.cute as cute
from cutlass import BFloat16, Float8E4M3FN, Float16, Float32, Int32, Int64, Uint8, const_expr, range_constexpr
from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.eights import EightsKernel, Held, TOKENS, LANES, SLAB_ROW
from mla_var3.kernel.cute_python.kit.twins import *
from mla_var3.kernel.cute_python.kit.window import at_address, shuffled
from mla_var3.kernel.cute_python.kit.slabs import SLABS, SLAB_BYTES
from mla_var3.kernel.cute_python.kit.dsmem import remote_address
from mla_var3.kernel.cute_python.kit.rings import Free


class Counted:
    """Each warp expects what the same warp of the other CTA sends; nothing waits for copies."""
    @cute.jit
    def tell_of(self, full, odd, told):
        cute.arch.sync_warp()
        lane = cute.arch.lane_idx()
        at = self.slab(told[0], odd) + lane
        for k in range_constexpr(1, len(told)):
            at = self.slab(told[k], odd) if lane == k else at
        if lane < len(told):
            if const_expr(told[-1] == self.values):
                size = Int32(TOKENS * SLAB_ROW) + (Int32(4) if at == self.rope_slab else Int32(0))
            else:
                size = Int32(TOKENS * SLAB_ROW)
            cute.arch.mbarrier_arrive_and_expect_tx(full + at, size)
    @cute.jit
    def convert_tile(self, storage, window, work, caches, group):
        odd, free = window.ring[0] & 1, storage.free.data_ptr()
        full = storage.full.data_ptr() + odd * SLABS
        cute.arch.mbarrier_wait(free + 3 * odd, self.parity(window, odd))
        self.take_scales(window, odd)  # all that is under way has come
        self.mark_tokens(storage, window, odd, group)
        for j in range_constexpr(self.values):
            if const_expr(j == self.near):
                cute.arch.mbarrier_wait(free + 1 + odd, self.parity(window, odd))
            self.convert_piece(storage, window, odd, group, j)
            cute.arch.sync_warp()
            if const_expr(j == 1):
                self.begin_next(window, work, caches, group)
            if const_expr(j > 0):
                self.fetch(window, j - 1, self.next_odd(window))
            for told in self.told[:-1]:
                if const_expr(j == told[-1]):
                    self.tell_of(full, odd, told)
        self.fetch(window, self.values - 1, self.next_odd(window))
        self.put_rope(storage, window, odd, group)
        self.tell_of(full, odd, self.told[-1])
        self.fetch_scales(window)
        if (window.ahead[0] & 32) == 0:
            self.fetch_rope(storage, window, odd, group)
        self.look(window, work, caches, group)

class Rows(Counted):
    """Eight lanes have a token: a store fills whole rows of 128 bytes."""
    def window(self):
        n = 8 // self.each
        return Held(
            *(cute.make_rmem_tensor(k, Int32) for k in (2, 4, 1, 1)),
            cute.make_rmem_tensor(1, Int64),
            *(cute.make_rmem_tensor(1, Int32) for _ in range(2)),
            cute.make_rmem_tensor(3, Int64),
            cute.make_rmem_tensor(cute.make_layout((PIECE, self.values + self.ropes)), Uint8),
            cute.make_rmem_tensor(self.words, Int32),
            cute.make_rmem_tensor(2 * n, Float16),
            cute.make_rmem_tensor(3, Int32),
        )
    def token(self, i):
        return 4 * i + cute.arch.lane_idx() // 8
    @cute.jit
    def begin_next(self, window, work, caches, group):
        row = window.further[0]
        window.ring[0] = (window.ring[0] & -9) | (Int32(8) if row != 0 else Int32(0))
        row = row if row != 0 else self.any_row(caches)
        window.row[2] = row + Int64(window.apart[0])
        for i in range_constexpr(2):
            window.row[i] = shuffled(row, LANES * self.token(i)) + Int64(8 * (cute.arch.lane_idx() % 8))
        self.find(window, caches)
    @cute.jit
    def fetch_scales(self, window):
        cute.autovec_copy(at_address(window.row[2], Int32, self.words, 4 * self.words), window.words)
    @cute.jit
    def take_scales(self, window, odd):
        window.mask[0] = Int32(-1) if (window.ring[0] & 8) != 0 else Int32(0)
        exact, n = self.exact(window.words), 8 // self.each
        found, mine = cute.make_rmem_tensor(n, Float16), cute.make_rmem_tensor(n, Float16)
        for i in range_constexpr(n):
            found[i] = exact[i].to(Float16)
        pairs, into = cute.recast_tensor(found, Int32), cute.recast_tensor(mine, Int32)
        half = n // 4
        for i in range_constexpr(2 * half):
            pairs[i] = pairs[i] & window.mask[0]
        for i in range_constexpr(half):
            into[i] = pairs[half + i] if odd == 1 else pairs[i]
            into[half + i] = pairs[i] if odd == 1 else pairs[half + i]
        if const_expr(self.fixed == 3):
            mine[3] = mine[7] if odd == 1 else mine[3]
        every = cute.recast_tensor(window.scales, Int32)
        for i in range_constexpr(2):
            source = LANES * self.token(i)
            for k in range_constexpr(2 * half):
                every[2 * half * i + k] = cute.arch.shuffle_sync(into[k], source)
            window.mask[1 + i] = cute.arch.shuffle_sync(window.mask[0], source)
    @cute.jit
    def fetch(self, window, p: cutlass.Constexpr, odd):
        for i in range_constexpr(2):
            at = window.row[i] + Int64(64 * self.slab(p, odd))
            into = cute.local_tile(window.pieces[None, p], (8,), (i,))
            cute.autovec_copy(at_address(at, Uint8, 8, 8), into)
    @cute.jit
    def fetch_rope(self, storage, window, odd, group):
        for i in range_constexpr(2):
            at = window.row[i] + Int64(self.rope_bytes + 8 * (cute.arch.lane_idx() % 8))
            cute.autovec_copy(at_address(at, Uint8, PIECE, PIECE), window.pieces[None, self.values + i])
    def row_of(self, storage, group, i):
        t, lane = self.token(i), cute.arch.lane_idx()
        row = (self.eighth(group) * TOKENS + t) * SLAB_ROW + ((lane % 8) ^ t) * PIECE
        return Int32(storage.kv.data_ptr().toint()) + row
    def rope_place(self, storage, odd, group, i):
        return self.row_of(storage, group, i) + (odd * SLABS + self.rope_slab) * SLAB_BYTES
    @cute.jit
    def convert_piece(self, storage, window, odd, group, j: cutlass.Constexpr):
        slab, n = odd * SLABS + self.slab(j, odd), 8 // self.each
        for i in range_constexpr(2):
            words = cute.recast_tensor(window.pieces[None, j], Int32)
            raw = cute.make_rmem_tensor(2, Int32)
            for k in range_constexpr(2):
                raw[k] = words[2 * i + k] & window.mask[1 + i]
            values = cute.make_rmem_tensor(8, Float16)
            factor = window.scales[n * i + j // self.each]
            values.store(cute.recast_tensor(raw, Float8E4M3FN).load().to(Float16) * factor)
            at = self.row_of(storage, group, i) + slab * SLAB_BYTES
            self.put_piece(storage, cute.recast_tensor(values, Uint8), at, slab)

class R656(Rows, ListTwinsKernel):
    pass
class R584(Rows, Model1TwinsKernel):
    @cute.jit
    def put_rope(self, storage, window, odd, group):
        for i in range_constexpr(2):
            words = cute.recast_tensor(window.pieces[None, self.values + i], Int32)
            raw = cute.make_rmem_tensor(4, Int32)
            for k in range_constexpr(4):
                raw[k] = words[k] & window.mask[1 + i]
            values = cute.make_rmem_tensor(PIECE // 2, Float16)
            values.store(cute.recast_tensor(raw, BFloat16).load().to(Float32).to(Float16))
            part = cute.recast_tensor(values, Uint8)
            slab = odd * SLABS + self.rope_slab
            self.put_piece(storage, part, self.rope_place(storage, odd, group, i), slab)

class W656(Counted, ListTwinsKernel):
    pass

class Narrow(Counted):
    """Four lanes have a token, two pieces of eight bytes each: a store fills half rows."""
    @cute.jit
    def begin_next(self, window, work, caches, group):
        EightsKernel.begin_next(self, window, work, caches, group)
        window.row[0] = window.row[0] - Int64(8) * (cute.arch.lane_idx() % LANES)
    @cute.jit
    def fetch_scales(self, window):
        at = window.row[0] - Int64(8) * (cute.arch.lane_idx() % LANES) + window.away[0]
        cute.autovec_copy(at_address(at, Int32, self.words, 4 * self.words), window.words)
    @cute.jit
    def fetch(self, window, p: cutlass.Constexpr, odd):
        for i in range_constexpr(2):
            at = window.row[0] + Int64(64 * self.slab(p, odd) + 32 * i)
            into = cute.local_tile(window.pieces[None, p], (8,), (i,))
            cute.autovec_copy(at_address(at, Uint8, 8, 8), into)
    @cute.jit
    def fetch_rope(self, storage, window, odd, group):
        for i in range_constexpr(2):
            at = window.row[0] + Int64(self.rope_bytes + LANES * PIECE * i) + Int64(8) * (cute.arch.lane_idx() % LANES)
            cute.autovec_copy(at_address(at, Uint8, PIECE, PIECE), window.pieces[None, self.values + i])
    def begin_of(self, storage, odd, group, j):
        lane = cute.arch.lane_idx()
        token, number = lane // LANES, lane % LANES
        row = (self.eighth(group) * TOKENS + token) * SLAB_ROW + (number ^ token) * PIECE
        turned = odd * (SLABS + 4) if j < self.near else odd * (SLABS - 4)
        if self.fixed == j:
            turned = odd * SLABS
        return Int32(storage.kv.data_ptr().toint()) + row + (turned + j) * SLAB_BYTES
    @cute.jit
    def convert_piece(self, storage, window, odd, group, j: cutlass.Constexpr):
        raw, begin = self.alive(window.pieces[None, j], window), self.begin_of(storage, odd, group, j)
        slab = odd * SLABS + self.slab(j, odd)
        values = cute.make_rmem_tensor(PIECE, Float16)
        factor = window.scales[j // self.each]
        values.store(cute.recast_tensor(raw, Float8E4M3FN).load().to(Float16) * factor)
        bits = cute.recast_tensor(values, Uint8)
        for n in range_constexpr(2):
            part = cute.local_tile(bits, (PIECE,), (n,))
            self.put_piece(storage, part, begin ^ (n * 4 * PIECE), slab)
class N656(Narrow, ListTwinsKernel):
    pass

class Bulk(Counted):
    """Converted rows go to the other CTA by bulk copies of 1 KB."""
    fenced = ()
    @cute.jit
    def put_piece(self, storage, part, begin, slab):
        EightsKernel.put_piece(self, storage, part, begin, slab)
    @cute.jit
    def tell_of(self, full, odd, told):
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_warp()
        lane = cute.arch.lane_idx()
        at = self.slab(told[0], odd) + lane
        for k in range_constexpr(1, len(told)):
            at = self.slab(told[k], odd) if lane == k else at
        if lane < len(told):
            size = Int32(TOKENS * SLAB_ROW) + (Int32(4) if at == self.rope_slab else Int32(0))
            cute.arch.mbarrier_arrive_and_expect_tx(full + at, size)
            here = self.kv_address[0] + (odd * SLABS + at) * SLAB_BYTES
            away = self.kv_address[1]
            barrier = Int32((full + at).toint()) + away
            cute.arch.inline_ptx(
                "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{$r0}], [{$r1}], {$r2}, [{$r3}];",
                read_only_args=[here + away, here, Int32(TOKENS * SLAB_ROW), barrier],
            )
    @cute.jit
    def convert_tile(self, storage, window, work, caches, group):
        here = Int32(storage.kv.data_ptr().toint()) + self.eighth(group) * (TOKENS * SLAB_ROW)
        self.kv_address = (here, self.away(storage))
        Counted.convert_tile(self, storage, window, work, caches, group)
class B656(Bulk, ListTwinsKernel):
    pass
class B584(Bulk, Model1TwinsKernel):
    fenced = ()

class Alone(Counted):
    """Nothing goes to the other CTA: wrong values, and what sharing would cost if it were free."""
    @cute.jit
    def put_piece(self, storage, part, begin, slab):
        EightsKernel.put_piece(self, storage, part, begin, slab)
    @cute.jit
    def put_mark(self, storage, filled, odd, eighth):
        at = storage.filled.data_ptr() + WARPS * 2 * odd + eighth
        cute.make_tensor(at, cute.make_layout(1))[0] = filled
    @cute.jit
    def tell_of(self, full, odd, told):
        cute.arch.sync_warp()
        lane = cute.arch.lane_idx()
        at = self.slab(told[0], odd) + lane
        for k in range_constexpr(1, len(told)):
            at = self.slab(told[k], odd) if lane == k else at
        if lane < len(told):
            cute.arch.mbarrier_arrive(full + at)
class A656(Alone, ListTwinsKernel):
    pass
class AR656(Alone, Rows, ListTwinsKernel):
    pass
