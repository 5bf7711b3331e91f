"""Attention whose CTAs begin sooner: what is read first is asked for before any barrier.

A producer needs one row of the schedule. It is on its way while barriers are set up and the cluster
meets. Who else has a part of a sequence is of no use to producers, and consumers look it up while
the first keys are on their way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.even import Cut
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.schedule import rank_in_cluster
from mla_var3.kernel.cute_python.kit.slabs import ROWS
from mla_var3.kernel.cute_python.kit.units import UnitsKernel, UnitsSchedule, UnitsWork
from mla_var3.kernel.cute_python.kit.warpgroups import CONSUMER_REGISTERS, PRODUCER_REGISTERS

#: ``alone``: the CTA shares its keys with none, although others of the launch share theirs.
PromptWork = NamedTuple("PromptWork", [*UnitsWork.__annotations__.items(), ("alone", Int32)])


class Row(NamedTuple):
    """What one load says of a CTA's work, and where in the launch it is."""

    worker: Int32
    group: Int32
    groups: Int32
    block: Int32
    alone: Int32
    first: Int32
    first_tile: Int32
    last: Int32
    last_tile: Int32
    final: Int32  # last worker of the sequence that this one begins and does not end
    begun: Int32  # first worker of the sequence that this one goes on with


@dataclass(frozen=True)
class PromptSchedule(UnitsSchedule):
    """The even schedule, in what is loaded at once and what depends on it."""

    @cute.jit
    def place_in_grid(self, workers, tiles):
        """Worker, group of row tiles, row tile; whether it is alone, and whether it has no work."""
        groups = cute.ceil_div(tiles, self.share)
        cluster = cute.arch.make_warp_uniform(cute.arch.cluster_idx()[0])
        group = cluster % groups
        block = group * self.share + rank_in_cluster()
        return workers - 1 - cluster // groups, group, block, Int32(0), False

    @cute.jit
    def row(self, where, lse):
        """This CTA's row of the schedule."""
        _, heads, queries, _ = lse.shape
        tiles = cute.ceil_div(heads * queries, ROWS)
        worker, group, block, alone, idle = self.place_in_grid(where[2].shape[0], tiles)
        cut = where[2][worker, None]
        first, last = cut[int(Cut.SEQUENCE)], cut[int(Cut.END_SEQUENCE)]
        last_tile, final = cut[int(Cut.END_TILE)], cut[int(Cut.LAST)]
        if idle:
            last, last_tile, final = first, Int32(0), Int32(-1)
        return Row(
            worker, group, cute.ceil_div(tiles, self.share), block, alone,
            first, cut[int(Cut.TILE)], last, last_tile, final, cut[int(Cut.OWNER)],
        )  # fmt: skip

    @cute.jit
    def work_of(self, where, lse, masked, row):
        """The work of a row; who else has a part of the sequence that it ends with takes loads."""
        table, lengths, cuts = where
        _, heads, queries, _ = lse.shape
        last = row.last - 1 if row.last_tile == 0 else row.last
        owner = row.begun if (last == row.first) & (row.first_tile > 0) else row.worker
        final = row.final
        if owner != row.worker:
            final = cuts[cutlass.max(owner, 0), int(Cut.LAST)]
        finisher = cuts[cutlass.max(final, 0), None]
        done = (finisher[int(Cut.END_SEQUENCE)] == last + 1) & (finisher[int(Cut.END_TILE)] == 0)
        slot = 2 * (row.worker * row.groups + row.group) * self.share + row.block % self.share
        return PromptWork(
            table, lengths, row.first, row.first_tile, last, row.last_tile, row.block, slot,
            heads, queries, masked, row.worker, owner, final, row.group, row.groups,
            Int32(done), row.begun, row.alone,
        )  # fmt: skip


class PromptKernel(UnitsKernel):
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
        row = self.schedule.row(where, outputs[2])
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.fetch_descriptors(warp_index, (*q_loads[::2], *kv_loads[::2], outputs[0]))
        self.init_barriers(storage, warp_index)
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            work = self.schedule.work_of(where, outputs[2], masked, row)
            for group in range_constexpr(4):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_loads, kv_loads, work, group)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            own = self.schedule.work_of(where, outputs[2], masked, row)
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, own, scale_log2, outputs, slots, side)
            self.consumed(storage, own, outputs, slots)
        self.end()
