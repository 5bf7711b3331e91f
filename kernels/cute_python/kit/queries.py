"""Q loads of latent attention: one mbarrier for all, or one per slab so that scores begin early."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import ROPE_SLAB, SLAB_BYTES, SLABS


class WholeQueries:
    """One barrier, awaited before the first scores."""

    barriers = 1

    @cute.jit
    def load(self, storage, q_loads, block, batch, parity, group: cutlass.Constexpr):
        """An item's queries; two warps, since the rope slab's place comes free later."""
        full, free = storage.q_full.data_ptr(), storage.free.data_ptr()
        if const_expr(group == Free.EVEN_LEFT):
            cute.arch.mbarrier_wait(free + Free.Q, parity)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, SLABS * SLAB_BYTES)
            for slab in range_constexpr(ROPE_SLAB):
                q_loads.issue(slab, block, batch, slab, full)
        if const_expr(group == Free.ODD_LEFT):
            cute.arch.mbarrier_wait(free + Free.Q_ROPE, parity)
            q_loads.issue(ROPE_SLAB, block, batch, ROPE_SLAB, full)

    def rope(self, storage):
        """The barrier of the rope slab."""
        return storage.q_full.data_ptr()

    def first(self, storage, phase):
        """What the first scores wait for, slab by slab: nothing more."""
        return None

    def await_rest(self, storage, phase):
        """What the side that scores later waits for: nothing more."""


class SlabQueries:
    """A barrier per slab, so that scores begin with the first."""

    barriers = SLABS

    @cute.jit
    def load(self, storage, q_loads, block, batch, parity, group: cutlass.Constexpr):
        """An item's queries; two warps, since the rope slab's place comes free later."""
        full, free = storage.q_full.data_ptr(), storage.free.data_ptr()
        if const_expr(group == Free.EVEN_LEFT):
            cute.arch.mbarrier_wait(free + Free.Q, parity)
            for slab in range_constexpr(ROPE_SLAB):
                self.load_slab(q_loads, block, batch, slab, full)
        if const_expr(group == Free.ODD_LEFT):
            cute.arch.mbarrier_wait(free + Free.Q_ROPE, parity)
            self.load_slab(q_loads, block, batch, ROPE_SLAB, full)

    @cute.jit
    def load_slab(self, q_loads, block, batch, slab: cutlass.Constexpr, full):
        """A slab, under its own barrier."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + slab, SLAB_BYTES)
        q_loads.issue(slab, block, batch, slab, full + slab)

    def rope(self, storage):
        """The barrier of the rope slab."""
        return storage.q_full.data_ptr() + ROPE_SLAB

    def first(self, storage, phase):
        """What the first scores wait for, slab by slab."""
        return storage.q_full.data_ptr(), phase

    @cute.jit
    def await_rest(self, storage, phase):
        """What the side that scores later waits for: all at once."""
        for slab in range_constexpr(ROPE_SLAB):
            cute.arch.mbarrier_wait(storage.q_full.data_ptr() + slab, phase)


class OnceQueries(WholeQueries):
    """Those of the only item of a CTA: nothing has to come free first."""

    @cute.jit
    def load(self, storage, q_loads, block, batch, parity, group: cutlass.Constexpr):
        """All queries, by one warp."""
        full = storage.q_full.data_ptr()
        if const_expr(group == Free.EVEN_LEFT):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, SLABS * SLAB_BYTES)
            for slab in range_constexpr(SLABS):
                q_loads.issue(slab, block, batch, slab, full)
