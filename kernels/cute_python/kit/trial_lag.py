"""Trial producers of sparse decode: pieces sent for after telling."""
import cutlass, cutlass.cute as cute
from cutlass import Int32, const_expr, range_constexpr
from mla_var3.kernel.cute_python.kit.list_window import ListWindowKernel, Model1Kernel
from mla_var3.kernel.cute_python.kit.slabs import SLABS
from mla_var3.kernel.cute_python.kit.trial_half import Half, Quick, Wide

class Lag:
    """Pieces follow into registers once the stores out of them are long done, and after a slab is told of."""
    lag = 1
    wide = False
    def due(self, j):
        for g, told in enumerate(self.told[:-1]):
            if told[-1] == j and g >= self.lag:
                return self.of(g - self.lag)
        return ()
    def of(self, g):
        return tuple(p for s in self.told[g] if s < self.values for p in (2 * s, 2 * s + 1))
    def rest(self):
        n = len(self.told)
        return tuple(p for g in range(max(n - 1 - self.lag, 0), n) for p in self.of(g))
    @cute.jit
    def convert_tile(self, storage, window, work, caches, where, group):
        odd, phase, next_odd, next_phase, more = where
        free = storage.free.data_ptr()
        full, filled = storage.full.data_ptr() + odd * SLABS, window.filled[0]
        cute.arch.mbarrier_wait(free + 3 * odd, phase)
        self.pack(window)
        factors = self.factors(window.scales, odd)
        self.mark_filled(storage, filled, odd, group)
        step = 2 if const_expr(self.wide) else 1
        for j in range_constexpr(0, self.values, step):
            if const_expr(j == self.near):
                cute.arch.mbarrier_wait(free + 1 + odd, phase)
            for i in range_constexpr(2 * step):
                self.convert(storage, window, factors, filled, odd, group, 2 * j + i)
                if const_expr(j + i == 0):
                    self.begin_next(window, work, caches, group)
            for told in self.told[:-1]:
                if const_expr(j + step - 1 == told[-1]):
                    self.tell_of(full, odd, told)
                    for p in self.due(told[-1]):
                        self.fetch(window, p, next_odd)
        cute.arch.cp_async_wait_group(0)
        self.put_rope(storage, filled, odd, group)
        self.tell_of(full, odd, self.told[-1])
        for p in self.rest():
            self.fetch(window, p, next_odd)
        if more:
            self.await_rope(free, next_odd, next_phase)
            self.fetch_rope(storage, window, next_odd, group)

class WideLag(Lag):
    wide = True
class L656(Lag, ListWindowKernel): pass
class LQ656(Lag, Quick, ListWindowKernel): pass
class LH656(Lag, Half, ListWindowKernel): pass
class LA656(WideLag, Wide, ListWindowKernel): pass
class LAQ656(WideLag, Wide, Quick, ListWindowKernel): pass
class LAH656(WideLag, Wide, Half, ListWindowKernel): pass
class L0Q656(Lag, Quick, ListWindowKernel): lag = 0
class L584(Lag, Model1Kernel): lag = 0
class LQ584(Lag, Quick, Model1Kernel): lag = 0
class LH584(Lag, Half, Model1Kernel): lag = 0
class L4H584(Lag, Half, Model1Kernel):
    told, fenced = ((0, 1), (2, 3), (4, 5), (6, 7)), (0, 2, 4, 6)
class L4Q584(Lag, Quick, Model1Kernel):
    told, fenced = ((0, 1), (2, 3), (4, 5), (6, 7)), (0, 2, 4, 6)
class M2H656(Lag, Half, ListWindowKernel):
    lag, told, fenced = 0, ((0, 1, 2, 3), (4, 5, 6, 7, 8)), ()
class M4H656(Lag, Half, ListWindowKernel):
    lag, fenced = 0, ()
class L3H584(Lag, Half, Model1Kernel):
    lag, told = 0, ((0, 1, 2), (3, 4), (5, 6, 7))
class W4H656(WideLag, Wide, Half, ListWindowKernel):
    lag, fenced = 0, ()
class W2H656(WideLag, Wide, Half, ListWindowKernel):
    lag, told, fenced = 0, ((0, 1, 2, 3), (4, 5, 6, 7, 8)), ()
class W4Q656(WideLag, Wide, Quick, ListWindowKernel):
    lag, fenced = 0, ()
class M4Q656(Lag, Quick, ListWindowKernel):
    lag, fenced = 0, ()
