"""Trial consumers and producers of sparse decode: halves of scores, queries, wide pieces."""
import cutlass, cutlass.cute as cute
from cutlass import BFloat16, Float16, Float8E4M3FN, Float32, Int32, Int64, Uint8, const_expr, range_constexpr
from cutlass.cute.nvgpu import warpgroup
from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.handovers import Handover, arrive, sync
from mla_var3.kernel.cute_python.kit.list_window import ListWindowKernel, Model1Kernel
from mla_var3.kernel.cute_python.kit.products import RMEM, SMEM, accumulate
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import SLABS, SlabLoads, shared_slabs
from mla_var3.kernel.cute_python.kit.softmax import adopt_max, publish_max, rescale, store_weights
from mla_var3.kernel.cute_python.kit.sparse import TOKENS
from mla_var3.kernel.cute_python.kit.warpgroups import Side
from mla_var3.kernel.cute_python.kit.window import FOUR, Window, at_address, shuffled
from mla_var3.kernel.cute_python.kit.trial_early import Early

class Half(Early):
    """Right takes the even tile between the halves of the odd tile's scores."""
    @cute.jit
    def right_pair(self, wg, phase, more, last):
        self.scores(wg, Side.RIGHT, self.orders[1][:self.near], True, phase, None)
        self.take_even(wg)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_RIGHT)
        self.scores(wg, Side.RIGHT, self.orders[1][self.near:], False, phase, None)
        warpgroup.wait_group(0)
        if last:
            self.release(wg, Free.Q)
        self.weigh(wg, 1)
        publish_max(wg, Side.RIGHT)
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.ODD_WEIGHTS)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.RIGHT)
        warpgroup.wait_group(0)
        if more:  # else it is the output's way out
            self.release(wg, Free.ODD_RIGHT)

class Quick:
    """v5, but queries are let go of after the last scores."""
    @cute.jit
    def right_tiles(self, wg, even, odd, odds):
        if odd == 0:
            self.release(wg, Free.Q)
        for i in cutlass.range(odd, unroll=1):
            self.right_pair(wg, i, (odds + i) & 1, i + 1 < even, i + 1 == odd)
        if even > odd:
            self.right_alone(wg)
    @cute.jit
    def right_pair(self, wg, i, phase, more, last):
        self.scores(wg, Side.RIGHT, self.orders[1], True, phase, None)
        warpgroup.wait_group(0)
        if last:
            self.release(wg, Free.Q)
        sync(Handover.EVEN_MAX)
        adopt_max(wg, Side.LEFT)
        even_shrink = (wg.shrink[0], wg.shrink[1])
        self.weigh(wg, 2 * i + 1)
        publish_max(wg, Side.RIGHT)
        arrive(Handover.ODD_MAX)
        for r in range_constexpr(2):
            wg.shrink[r] = wg.shrink[r] * even_shrink[r]
        store_weights(wg)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.RIGHT)
        cute.arch.fence_proxy("async.shared", space="cta")
        sync(Handover.EVEN_WEIGHTS)
        accumulate(wg, SMEM, wg.peer_weights, Side.LEFT)
        arrive(Handover.ODD_WEIGHTS)
        warpgroup.wait_group(1)
        if more:
            self.release(wg, Free.ODD_RIGHT)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_RIGHT)

class Wide:
    """A piece is 128 values of four tokens."""
    @cute.jit
    def gather(self, storage, q_tensors, caches, work, group):
        s_q = cute.recast_tensor(shared_slabs(storage.q, Float16, SLABS), BFloat16)
        q_loads = SlabLoads(*q_tensors, s_q)
        window = Window(
            *(cute.make_rmem_tensor(n, Int32) for n in (2, 4)),
            *(cute.make_rmem_tensor(n, Int64) for n in (2, 1, 4)),
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
        for p in range_constexpr(2 * self.values):
            self.fetch(window, p, Int32(0))
        self.fetch_rope(storage, window, Int32(0), group)
        taken, evens, odds = Int32(0), Int32(0), Int32(0)
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

    @cute.jit
    def begin_next(self, window, work, caches, group):
        mine, filled, lane = window.mine, window.filled, cute.arch.lane_idx()
        mine[0], filled[0] = window.further[0], filled[1]
        words = window.further[1] + Int64(4 * self.words) * (lane // TOKENS)
        cute.autovec_copy(at_address(words, Int32, self.words, 4 * self.words), window.words)
        for i in range_constexpr(4):
            window.rows[i] = shuffled(mine[0], FOUR * i + lane // 8) + Int64(PIECE) * (lane % 8)
        self.find(window, caches)
        self.look(window, work, caches, group)

    @cute.jit
    def factors(self, scales, odd):
        count, lane = cute.size(scales), cute.arch.lane_idx()
        found = cute.make_rmem_tensor(cute.make_layout((count, 2, 4)), Float16)
        pairs, into = cute.recast_tensor(scales, Int32), cute.recast_tensor(found, Int32)
        for i in range_constexpr(4):
            for h in range_constexpr(2):
                source = FOUR * i + lane // 8 + TOKENS * (odd ^ h)
                for n in range_constexpr(count // 2):
                    into[n, h, i] = cute.arch.shuffle_sync(pairs[n], source)
        return found

    @cute.jit
    def fetch(self, window, p: cutlass.Constexpr, odd):
        at = window.rows[p % 4] + Int64(64) * self.slab(p // 4 * 2, odd)
        cute.autovec_copy(at_address(at, Uint8, PIECE, PIECE), window.pieces[None, p])

    @cute.jit
    def convert_tile(self, storage, window, work, caches, where, group):
        odd, phase, next_odd, next_phase, more = where
        free = storage.free.data_ptr()
        full, filled = storage.full.data_ptr() + odd * SLABS, window.filled[0]
        cute.arch.mbarrier_wait(free + 3 * odd, phase)
        self.pack(window)
        factors = self.factors(window.scales, odd)
        self.mark_filled(storage, filled, odd, group)
        for j in range_constexpr(0, self.values, 2):
            if const_expr(j == self.near):
                cute.arch.mbarrier_wait(free + 1 + odd, phase)
            for i in range_constexpr(4):
                self.convert(storage, window, factors, filled, odd, group, 2 * j + i)
                if const_expr(j + i == 0):
                    self.begin_next(window, work, caches, group)
                self.fetch(window, 2 * j + i, next_odd)
            for told in self.told[:-1]:
                if const_expr(j + 1 == told[-1]):
                    self.tell_of(full, odd, told)
        cute.arch.cp_async_wait_group(0)
        self.put_rope(storage, filled, odd, group)
        self.tell_of(full, odd, self.told[-1])
        if more:
            self.await_rope(free, next_odd, next_phase)
            self.fetch_rope(storage, window, next_odd, group)

    @cute.jit
    def convert(self, storage, window, factors, filled, odd, group, p: cutlass.Constexpr):
        pieces, lane, j = self.pieces(storage), cute.arch.lane_idx(), p // 4 * 2
        i = p % 4
        row, turn = FOUR * i + lane // 8, (lane // 4) & 1
        slab = odd * SLABS + self.slab(j, odd) + turn
        raw = cute.make_rmem_tensor(PIECE, Uint8)
        words, into = cute.recast_tensor(window.pieces[None, p], Int32), cute.recast_tensor(raw, Int32)
        mask = Int32(0) - ((filled >> row) & 1)
        for n in range_constexpr(4):
            into[n] = (words[n ^ 2] if turn == 1 else words[n]) & mask
        values = cute.make_rmem_tensor(PIECE, Float16)
        factor = self.factor(factors, j, i, odd)
        values.store(cute.recast_tensor(raw, Float8E4M3FN).load().to(Float16) * factor)
        bits = cute.recast_tensor(values, Uint8)
        for n in range_constexpr(2):
            out = self.piece(pieces, slab, group * TOKENS + row, 2 * (lane % 4) + (n ^ turn))
            cute.autovec_copy(cute.local_tile(bits, (PIECE,), (n,)), out)

class H656(Half, ListWindowKernel): pass
class H584(Half, Model1Kernel): pass
class Q656(Quick, ListWindowKernel): pass
class Q584(Quick, Model1Kernel): pass
class A656(Wide, ListWindowKernel): pass
class AQ656(Wide, Quick, ListWindowKernel): pass
class HA656(Wide, Half, ListWindowKernel): pass
