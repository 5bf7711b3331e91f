"""Producers: marks and ablations. Flags by class."""
from collections import namedtuple
import cutlass, cutlass.cute as cute
from cutlass import BFloat16, Float16, Float32, Int32, Int64, Uint8, Float8E4M3FN, const_expr, range_constexpr
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op
from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.list_window import ListWindowKernel, Model1Kernel
from mla_var3.kernel.cute_python.kit.slabs import SLABS, SlabLoads, shared_slabs
from mla_var3.kernel.cute_python.kit.window import EIGHT, Window, at_address, shuffled
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.trial_early import Early
from mla_var3.kernel.cute_python.kit.alternate import AlternateEpilogue

@dsl_user_op
def clock(*, loc=None, ip=None):
    return Int32(llvm.inline_asm(T.i32(), [], "mov.u32 $0, %clock;", "=r", has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT, loc=loc, ip=ip))

Window2 = namedtuple("Window2", [*Window._fields, "count", "marks"])
MARKS = 14
FINE = (4, 12, 13)
def add_shared(at, value):
    cute.arch.inline_ptx("red.shared.add.u32 [{$r0}], {$r1};", read_only_args=[at, value])
class Epi(AlternateEpilogue):
    def fields(self):
        return {**super().fields(), "trace": cute.struct.MemRange[Int32, 64]}

class Prod:
    nostore = noload = traced = nohint = False
    fine = False

    @cute.jit
    def gather(self, storage, q_tensors, caches, work, group):
        s_q = cute.recast_tensor(shared_slabs(storage.q, Float16, SLABS), BFloat16)
        q_loads = SlabLoads(*q_tensors, s_q)
        window = Window2(
            *(cute.make_rmem_tensor(n, Int32) for n in (2, 4)),
            *(cute.make_rmem_tensor(n, Int64) for n in (2, 1, 2)),
            cute.make_rmem_tensor(cute.make_layout((PIECE, 2 * self.values)), Uint8),
            cute.make_rmem_tensor(self.words, Int32),
            cute.make_rmem_tensor(4 // self.each, Float16),
            cute.make_rmem_tensor(2, Int32),
            cute.make_rmem_tensor(1, Int32),
            cute.make_rmem_tensor(4, Int32),
        )
        window.count[0] = Int32(0)
        if const_expr(self.traced):
            window.marks[0] = Int32(0)
            for p in range_constexpr(1, 4):
                window.marks[p] = Int32(0)
            table = storage.trace.get_tensor(cute.make_layout(64))
            if const_expr(not self.fine):
                window.marks[1] = Int32(storage.trace.data_ptr().toint()) + 64 * group
                if cute.arch.lane_idx() < 16:
                    table[16 * group + cute.arch.lane_idx()] = Int32(0)
                cute.arch.sync_warp()
        self.open(window.cursor, work, work.first)
        self.look(window, work, caches, group)
        self.find(window, caches)
        self.look(window, work, caches, group)
        self.begin_next(window, work, caches, group)
        for p in range_constexpr(2 * self.values):
            self.fetch(window, p, Int32(0))
        self.fetch_rope(storage, window, Int32(0), group)
        if const_expr(self.traced):
            window.marks[0] = clock()
        taken, evens, odds = Int32(0), Int32(0), Int32(0)
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            start, stop, _ = self.schedule.part(work, sequence, work.lengths[sequence])
            self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, group)
            self.tick(window, 0)
            for tile in cutlass.range(start, stop, unroll=1):
                odd = (tile - start) & 1
                evens, odds = evens + (odd ^ 1), odds + odd
                next_odd = odd ^ 1 if tile + 1 < stop else Int32(0)
                phase = odds & 1 if odd == 1 else evens & 1
                next_phase = (odds & 1 if next_odd == 1 else evens & 1) ^ 1
                more = (tile + 1 < stop) | (sequence < work.last)
                where = odd, phase, next_odd, next_phase, more
                self.convert_tile(storage, window, work, caches, where, group)
                window.count[0] = window.count[0] + 1
            taken = taken + 1
        if const_expr(self.traced):
            cute.arch.barrier(barrier_id=9, number_of_threads=384)
            if cute.arch.lane_idx() == 0:
                for p in range_constexpr(MARKS):
                    if const_expr(not self.fine):
                        caches[4][work.last, 64 * work.block + 16 * group + p, 0, 0] = Float32(table[16 * group + p])
                    elif const_expr(p in FINE):
                        caches[4][work.last, 64 * work.block + 16 * group + p, 0, 0] = Float32(window.marks[1 + FINE.index(p)])
                caches[4][work.last, 64 * work.block + 16 * group + 14, 0, 0] = Float32(window.count[0])
                caches[4][work.last, 64 * work.block + 16 * group + 15, 0, 0] = Float32(4242.0)

    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, slots, side: cutlass.Constexpr):
        ListWindowKernel.consume(self, storage, work, scale_log2, outputs, slots, side)
        if const_expr(self.traced):
            cute.arch.barrier(barrier_id=9, number_of_threads=384)

    @cute.jit
    def tick(self, window, p: cutlass.Constexpr):
        if const_expr(self.traced):
            now = clock()
            if const_expr(not self.fine):
                if cute.arch.lane_idx() == 0:
                    add_shared(window.marks[1] + 4 * p, now - window.marks[0])
            elif const_expr(p in FINE):
                window.marks[1 + FINE.index(p)] = window.marks[1 + FINE.index(p)] + (now - window.marks[0])
            window.marks[0] = now

    def finetick(self, window, p):
        if self.fine:
            self.tick(window, p)

    @cute.jit
    def some_fetch(self, window, p: cutlass.Constexpr, odd):
        if const_expr(self.noload):
            if window.count[0] < 2:
                self.fetch(window, p, odd)
        else:
            self.fetch(window, p, odd)

    @cute.jit
    def convert_tile(self, storage, window, work, caches, where, group):
        odd, phase, next_odd, next_phase, more = where
        free = storage.free.data_ptr()
        full, filled = storage.full.data_ptr() + odd * SLABS, window.filled[0]
        self.tick(window, 1)  # between
        cute.arch.mbarrier_wait(free + 3 * odd, phase)
        self.tick(window, 2)  # wait first half
        self.pack(window)
        factors = self.factors(window.scales, odd)
        self.mark_filled(storage, filled, odd, group)
        self.tick(window, 3)  # wait for loads, scales
        for j in range_constexpr(self.values):
            if const_expr(j == self.near):
                self.tick(window, 4)  # first half
                cute.arch.mbarrier_wait(free + 1 + odd, phase)
                self.tick(window, 5)  # wait second half
            for i in range_constexpr(2):
                self.finetick(window, 4)
                self.convert(storage, window, factors, filled, odd, group, 2 * j + i)
                self.finetick(window, 12)  # stores
                if const_expr(j + i == 0):
                    self.tick(window, 4)
                    self.begin_next(window, work, caches, group)
                    self.tick(window, 6)  # begin next
                self.some_fetch(window, 2 * j + i, next_odd)
                self.finetick(window, 13)
            for told in self.told[:-1]:
                if const_expr(j == told[-1]):
                    self.tell_of(full, odd, told)
        self.tick(window, 7)  # second half
        cute.arch.cp_async_wait_group(0)
        self.put_rope(storage, filled, odd, group)
        self.tick(window, 8)  # rope wait
        self.tell_of(full, odd, self.told[-1])
        self.tick(window, 9)
        if more:
            self.await_rope(free, next_odd, next_phase)
            self.tick(window, 10)  # wait rope place
            self.fetch_rope(storage, window, next_odd, group)
        self.tick(window, 11)

    @cute.jit
    def convert(self, storage, window, factors, filled, odd, group, p: cutlass.Constexpr):
        pieces, lane, j = self.pieces(storage), cute.arch.lane_idx(), p // 2
        row, slab = EIGHT * (p % 2) + lane // 4, odd * SLABS + self.slab(j, odd)
        raw = self.masked(window.pieces[None, p], filled, row)
        values = cute.make_rmem_tensor(PIECE, Float16)
        factor = self.factor(factors, j, p % 2, odd)
        values.store(cute.recast_tensor(raw, Float8E4M3FN).load().to(Float16) * factor)
        bits = cute.recast_tensor(values, Uint8)
        self.finetick(window, 4)  # conversion
        if const_expr(self.nostore):
            words = cute.recast_tensor(values, Int32)
            some = words[0]
            for n in range_constexpr(1, 8):
                some = some ^ words[n]
            if (window.count[0] < 2) | (some == 0x12345678):
                for n in range_constexpr(2):
                    out = self.piece(pieces, slab, group * 16 + row, 2 * (lane % 4) + n)
                    cute.autovec_copy(cute.local_tile(bits, (PIECE,), (n,)), out)
        else:
            for n in range_constexpr(2):
                out = self.piece(pieces, slab, group * 16 + row, 2 * (lane % 4) + n)
                cute.autovec_copy(cute.local_tile(bits, (PIECE,), (n,)), out)

@dsl_user_op
def kept(word, mask, *, loc=None, ip=None):
    """A word under a mask, not later than here."""
    return Int32(llvm.inline_asm(T.i32(), [Int32(word).ir_value(loc=loc, ip=ip), Int32(mask).ir_value(loc=loc, ip=ip)], "and.b32 $0, $1, $2;", "=r,r,r", has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT, loc=loc, ip=ip))

class Late(Prod):
    """The last pieces of a tile are sent for at its beginning: nothing sent for late is waited for."""
    late = 4
    def masked(self, raw, filled, row):
        return raw
    @cute.jit
    def gather(self, storage, q_tensors, caches, work, group):
        Prod.gather(self, storage, q_tensors, caches, work, group)
    @cute.jit
    def touch(self, window, p: cutlass.Constexpr, filled):
        row = EIGHT * (p % 2) + cute.arch.lane_idx() // 4
        mask = Int32(0) - ((filled >> row) & 1)
        words = cute.recast_tensor(window.pieces[None, p], Int32)
        for n in range_constexpr(4):
            words[n] = kept(words[n], mask)
    @cute.jit
    def convert_tile(self, storage, window, work, caches, where, group):
        odd, phase, next_odd, next_phase, more = where
        free = storage.free.data_ptr()
        full, filled = storage.full.data_ptr() + odd * SLABS, window.filled[0]
        count = 2 * self.values
        first = count - self.late
        self.tick(window, 1)  # between
        cute.arch.mbarrier_wait(free + 3 * odd, phase)
        self.tick(window, 2)  # wait first half
        self.pack(window)
        factors = self.factors(window.scales, odd)
        self.mark_filled(storage, filled, odd, group)
        for p in range_constexpr(first):
            self.touch(window, p, filled)
        self.tick(window, 3)  # wait for loads, scales
        for p in range_constexpr(first, count):
            self.some_fetch(window, p, odd)
        self.begin_next(window, work, caches, group)
        self.tick(window, 6)
        for j in range_constexpr(self.values):
            if const_expr(j == self.near):
                self.tick(window, 4)  # first half
                cute.arch.mbarrier_wait(free + 1 + odd, phase)
                self.tick(window, 5)  # wait second half
            for i in range_constexpr(2):
                p = 2 * j + i
                self.finetick(window, 4)
                self.convert(storage, window, factors, filled, odd, group, p)
                self.finetick(window, 12)  # stores
                if const_expr(p == self.late - 1):
                    self.tick(window, 4)
                    for q in range_constexpr(first, count):
                        self.touch(window, q, filled)
                    self.tick(window, 13)
                    for q in range_constexpr(self.late):
                        self.some_fetch(window, q, next_odd)
                if const_expr(p >= self.late and p < first):
                    self.some_fetch(window, p, next_odd)
            for told in self.told[:-1]:
                if const_expr(j == told[-1]):
                    self.tell_of(full, odd, told)
        self.tick(window, 7)  # second half
        cute.arch.cp_async_wait_group(0)
        self.put_rope(storage, filled, odd, group)
        self.tick(window, 8)  # rope wait
        self.tell_of(full, odd, self.told[-1])
        self.tick(window, 9)
        if more:
            self.await_rope(free, next_odd, next_phase)
            self.tick(window, 10)  # wait rope place
            self.fetch_rope(storage, window, next_odd, group)
        self.tick(window, 11)

class Traced(Prod):
    traced = True
    def __init__(self, lazy, second=False, table=False):
        super().__init__(lazy, second, table); self.epilogue = Epi(1)
    @cute.jit
    def gather_all(self, storage, q_loads, caches, work, warp_index):
        self.gather(storage, q_loads, caches, work, warp_index - CONSUMERS // 32)
    @cute.kernel
    def list_attention(self, q_loads: tuple, caches: tuple, where: tuple, slots: tuple, outputs: tuple, scale_log2: Float32):
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = cutlass.utils.SmemAllocator().allocate(self.storage)
        self.fetch_descriptors(warp_index, (*q_loads[::2], outputs[0]))
        self.init_barriers(storage, warp_index)
        work = self.schedule.work(where, outputs[2], Int32(0))
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(self.registers[1])
            self.gather_all(storage, q_loads, (*caches, outputs[2]), work, warp_index)
        else:
            cute.arch.setmaxregister_increase(self.registers[0])
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, slots, side)
            self.consumed(storage, work, outputs, slots)
        self.end()

class VT656(Traced, ListWindowKernel): pass
class VT584(Traced, Model1Kernel): pass
class VF656(Traced, ListWindowKernel): fine = True
class VF584(Traced, Model1Kernel): fine = True
class ET656(Traced, Early, ListWindowKernel): pass
class ET584(Traced, Early, Model1Kernel): pass
class EF656(Traced, Early, ListWindowKernel): fine = True
class EF584(Traced, Early, Model1Kernel): fine = True
class VS656(Prod, ListWindowKernel): nostore = True
class VL656(Prod, ListWindowKernel): noload = True
class ES656(Prod, Early, ListWindowKernel): nostore = True
class EL656(Prod, Early, ListWindowKernel): noload = True
class ESL656(Prod, Early, ListWindowKernel): noload = nostore = True
class ES584(Prod, Early, Model1Kernel): nostore = True
class EL584(Prod, Early, Model1Kernel): noload = True
class ESL584(Prod, Early, Model1Kernel): noload = nostore = True

class EW656(Late, Early, ListWindowKernel): pass
class EW584(Late, Early, Model1Kernel): pass
class EWT656(Traced, Late, Early, ListWindowKernel): pass
class EWT584(Traced, Late, Early, Model1Kernel): pass
class EW6656(Late, Early, ListWindowKernel): late = 6
class EW3656(Late, Early, ListWindowKernel): late = 3
class VW656(Late, ListWindowKernel): pass
class E4584(Early, Model1Kernel):
    told, fenced = ((0, 1), (2, 3), (4, 5), (6, 7)), (0, 2, 4, 6)
class EW4584(Late, Early, Model1Kernel):
    told, fenced = ((0, 1), (2, 3), (4, 5), (6, 7)), (0, 2, 4, 6)
