"""Paged attention whose first loads wait for one read of the schedule.

Of the schedule a producer needs its worker's own row. Who else has a part of the sequence that the
worker ends with stands in the rows of others, each found by the one before; only consumers ask for
them, while they wait for keys. The own row is read before the barriers are set up.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.even import Cut
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.members import MembersSchedule, MembersWork
from mla_var3.kernel.cute_python.kit.schedule import rank_in_cluster
from mla_var3.kernel.cute_python.kit.short import ShortKernel
from mla_var3.kernel.cute_python.kit.slabs import SLABS, SlabLoads, shared_slabs
from mla_var3.kernel.cute_python.kit.warpgroups import CONSUMER_REGISTERS, PRODUCER_REGISTERS


@dataclass(frozen=True)
class PromptSchedule(MembersSchedule):
    """The even schedule, read in two steps."""

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA, as its worker's own row says; ``final`` and ``ends`` are open."""
        table, lengths, cuts = where
        _, heads, queries, _ = lse.shape
        groups = self.groups(heads * queries)
        cluster = cute.arch.make_warp_uniform(cute.arch.cluster_idx()[0])
        worker, group = cuts.shape[0] - 1 - cluster // groups, cluster % groups
        rank, cut = rank_in_cluster(), cuts[worker, None]
        first, first_tile = cut[int(Cut.SEQUENCE)], cut[int(Cut.TILE)]
        last, last_tile = cut[int(Cut.END_SEQUENCE)], cut[int(Cut.END_TILE)]
        last = last - Int32(last_tile == 0)
        begun = cut[int(Cut.OWNER)]  # read beside the others, whatever they say
        owner = cutlass.select_((last == first) & (first_tile > 0), begun, worker)
        return MembersWork(
            table, lengths, first, first_tile, last, last_tile,
            group * self.share + rank, 2 * (worker * groups + group) * self.share + rank,
            heads, queries, masked, worker, owner, Int32(-1), group, groups, Int32(0),
        )  # fmt: skip

    @cute.jit
    def members(self, work, cuts):
        """The same with who finishes the sequence that it ends with, and if that one ends there."""
        final = cuts[cutlass.max(work.owner, 0), int(Cut.LAST)]
        finisher = cuts[cutlass.max(final, 0), None]
        ends = (finisher[int(Cut.END_SEQUENCE)] == work.last + 1) & (
            finisher[int(Cut.END_TILE)] == 0
        )
        return work._replace(final=final, ends=Int32(ends))


class PromptKernel(ShortKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    def __init__(self, lazy, share, box, keep=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            share: CTAs of a cluster, which hold neighboring row tiles and share their keys.
            box: Keys that one load takes.
            keep: Whether L2 keeps keys as long as anything else.
        """
        super().__init__(lazy, share, box, keep)
        self.schedule = PromptSchedule(share)

    @cute.kernel
    def paged_attention(
        self,
        q_loads: tuple,
        kv_loads: tuple,
        where: tuple,
        slots: tuple,
        outputs: tuple,
        masked: Int32,
        scale_log2: Float32,
    ):
        """Grid as the schedule says; loads are TMA atoms and their tensors, latent part first."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        work = self.schedule.work(where, outputs[2], masked)
        self.fetch_descriptors(warp_index, (*q_loads[::2], *kv_loads[::2], outputs[0]))
        self.init_barriers(storage, warp_index)
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            for group in range_constexpr(4):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_loads, kv_loads, work, group)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            shared = self.schedule.members(work, where[2])
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, shared, scale_log2, outputs, slots, side)
            self.consumed(storage, shared, outputs, slots)
        self.end()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: half a tile of each pair; pages are asked for before the queries are loaded."""
        s_q = shared_slabs(storage.q, self.dtype, SLABS)
        s_kv = shared_slabs(storage.kv, self.dtype, 2 * SLABS)
        q_loads = SlabLoads(*q_tensors, s_q)
        rank = self.schedule.rank()
        kv_loads = self.loads(kv_tensors, s_kv, work.table, self.box, self.share, rank, self.policy)
        odd, entries = group // 2, kv_loads.entries()
        taken, done = Int32(0), Int32(0)  # sequences, and tiles of this parity, before this one
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            self.look_up(kv_loads, entries, sequence, length, start + odd)
            self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, group)
            count = (stop - start + 1 - odd) // 2
            for i in cutlass.range(count, unroll=1):
                tile = start + 2 * i + odd
                phase = ((done + i) & 1) ^ 1
                self.load_next(storage, kv_loads, entries, sequence, length, tile, phase, group)
            taken, done = taken + 1, done + count
