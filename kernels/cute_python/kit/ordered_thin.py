"""Few-row attention over sequences in an order of the schedule's own."""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.even import Cut
from mla_var3.kernel.cute_python.kit.ordered import Named, following, named, order_rows, workers_of
from mla_var3.kernel.cute_python.kit.slabs import ROPE_SLAB, SLAB, SLABS, shared_slabs
from mla_var3.kernel.cute_python.kit.thin_paged import ThinPagedKernel
from mla_var3.kernel.cute_python.kit.thin_schedule import ThinSchedule
from mla_var3.kernel.cute_python.kit.thin_slabs import GROUPS, thin_parts, thin_slabs


@dataclass(frozen=True)
class OrderedThinSchedule(ThinSchedule):
    """A CTA per worker; ``first`` and ``last`` of its work are sequences."""

    def launch(self, q, cuts):
        """Grid and cluster of a launch on q [b,s,h,512]."""
        return {"grid": (cuts.shape[0] - order_rows(q.shape[0]), 1, 1), "cluster": (1, 1, 1)}

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA, as its worker's own row says; ``final`` and ``ends`` are open."""
        table, lengths, cuts = where
        rows, follows = workers_of(cuts, lengths)
        work = ThinSchedule.work(self, (table, lengths, rows), lse, masked)
        return named(work, rows, follows)

    @cute.jit
    def members(self, work, cuts):
        """The same with who finishes the sequence that it ends with, and if that one ends there."""
        final = cuts[cutlass.max(work.owner, 0), int(Cut.LAST)]
        finisher = cuts[cutlass.max(final, 0), None]
        ends = (finisher[int(Named.LAST)] == work.last) & (finisher[int(Cut.END_TILE)] == 0)
        return work._replace(final=final, ends=Int32(ends))


class OrderedThinKernel(ThinPagedKernel):
    """Host and device half for a box of keys; the mask comes at launch.

    Args:
        columns: Rows (head, query) of a CTA, as many as a sequence has at most.
        box: Keys that one load takes.
    """

    def __init__(self, columns: int, box: int):
        super().__init__(columns, box)
        self.schedule = OrderedThinSchedule(1)

    @cute.jit
    def produce(self, storage, kv_tensors, work, group):
        """One warp: the tiles of one warpgroup, slab by slab, sequence after sequence."""
        shared = shared_slabs(storage.kv, self.dtype, GROUPS * SLABS)
        loads = self.loads(kv_tensors, shared, work.table, self.box, 1, 0, self.policy)
        entries, done = loads.entries(), Int32(0)
        sequence = Int32(work.first)
        while sequence >= 0:
            done = done + self.load_part(storage, loads, entries, work, sequence, done, group)
            sequence = following(work, sequence)

    @cute.jit
    def load_queries(self, storage, q_tensors, work):
        """One warp: the queries of one sequence after another."""
        load_q, q, load_qpe, qpe = q_tensors
        n, full = self.columns, storage.q_full.data_ptr()
        s_q = thin_slabs(storage.q, self.dtype, n, SLABS)
        target, latent = thin_parts(load_q, s_q, q, n)
        _, rope = thin_parts(load_qpe, s_q, qpe, n)
        taken = Int32(0)
        sequence = Int32(work.first)
        while sequence >= 0:
            cute.arch.mbarrier_wait(storage.q_free.data_ptr(), (taken & 1) ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, SLABS * n * SLAB * 2)
            place = target[None, ROPE_SLAB]
            cute.copy(load_qpe, rope[None, 0, 0, sequence], place, tma_bar_ptr=full)
            for slab in range_constexpr(ROPE_SLAB):
                source, place = latent[None, 0, slab, sequence], target[None, slab]
                cute.copy(load_q, source, place, tma_bar_ptr=full)
            taken = taken + 1
            sequence = following(work, sequence)

    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, slots):
        """Either warpgroup, sequence after sequence: its tiles, then its half of the output."""
        wg = self.views(storage, scale_log2)
        taken, done = Int32(0), Int32(0)  # sequences and tiles before this one
        sequence = Int32(work.first)
        while sequence >= 0:
            count = self.take_part(wg, storage, work, outputs, slots, sequence, taken, done)
            taken, done = taken + 1, done + count
            sequence = following(work, sequence)
