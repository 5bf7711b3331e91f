"""Sequences in an order of the schedule's own.

A worker's row names the sequences that it begins and ends with. Below the rows of the workers the
schedule holds which sequence follows each one: so a worker keeps no more registers than where
sequences are counted up.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr

from mla_var3.kernel.cute_python.kit.even import COLUMNS
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import KEYS, SLABS, SlabLoads, shared_slabs
from mla_var3.kernel.cute_python.kit.units import UnitsKernel, UnitsSchedule, UnitsWork
from mla_var3.kernel.cute_python.kit.warpgroups import Side


class Named(enum.IntEnum):
    """Columns of a worker's row that name sequences, beside those of ``Cut``, which count them."""

    FIRST = 6
    LAST = 7


OrderedWork = NamedTuple("OrderedWork", [*UnitsWork.__annotations__.items(), ("next", cute.Tensor)])


def order_rows(sequences):
    """Rows of a schedule that say what follows each of so many sequences."""
    return (sequences + COLUMNS - 1) // COLUMNS


def workers_of(cuts, lengths):
    """The rows of the workers alone, and what follows each sequence, which lies below them."""
    workers = cuts.shape[0] - order_rows(lengths.shape[0])
    rows = cute.make_tensor(
        cuts.iterator, cute.make_layout((workers, COLUMNS), stride=(COLUMNS, 1))
    )
    below = cuts.iterator + workers * COLUMNS
    return rows, cute.make_tensor(below, cute.make_layout(lengths.shape[0]))


def named(work, rows, follows):
    """The work of a worker by the sequences that its row names."""
    cut = rows[work.worker, None]
    by_name = work._replace(first=cut[int(Named.FIRST)], last=cut[int(Named.LAST)])
    return OrderedWork(*by_name, next=follows)


@cute.jit
def following(work, sequence):
    """The sequence that a worker takes after one, or -1."""
    found = Int32(-1)
    if sequence != work.last:
        found = work.next[sequence]
    return found


@dataclass(frozen=True)
class OrderedSchedule(UnitsSchedule):
    """The even schedule over an order of its own; ``first`` and ``last`` are sequences."""

    def launch(self, q, cuts):
        """Grid and cluster of a launch on q [b,s,h,512]."""
        workers = cuts.shape[0] - order_rows(q.shape[0])
        clusters = workers * self.groups(q.shape[1] * q.shape[2])
        return {"grid": (clusters * self.share, 1, 1), "cluster": (self.share, 1, 1)}

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA. Groups of one worker are neighbors: they read the same keys."""
        table, lengths, cuts = where
        rows, follows = workers_of(cuts, lengths)
        work = UnitsSchedule.work(self, (table, lengths, rows), lse, masked)
        return named(work, rows, follows)


class OrderedKernel(UnitsKernel):
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
        self.schedule = OrderedSchedule(share)

    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: half a tile of each pair; of a right half also the rope slab, first."""
        s_q = shared_slabs(storage.q, self.dtype, SLABS)
        s_kv = shared_slabs(storage.kv, self.dtype, 2 * SLABS)
        q_loads = SlabLoads(*q_tensors, s_q)
        rank = self.schedule.rank()
        kv_loads = self.loads(kv_tensors, s_kv, work.table, self.box, self.share, rank, self.policy)
        odd, entries = group // 2, kv_loads.entries()
        taken, done = Int32(0), Int32(0)  # sequences, and tiles of this parity, before this one
        sequence = Int32(work.first)
        while sequence >= 0:
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, group)
            count = (stop - start + 1 - odd) // 2
            self.look_up(kv_loads, entries, sequence, length, start + odd)
            for i in cutlass.range(count, unroll=1):
                tile = start + 2 * i + odd
                phase = ((done + i) & 1) ^ 1
                self.load_next(storage, kv_loads, entries, sequence, length, tile, phase, group)
            taken, done = taken + 1, done + count
            sequence = following(work, sequence)

    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, slots, side: cutlass.Constexpr):
        """One warpgroup, from queries to its half of the output, sequence after sequence."""
        wg = self.views(storage, scale_log2, side)
        taken, evens, odds = Int32(0), Int32(0), Int32(0)  # sequences and tiles before this one
        sequence = Int32(work.first)
        while sequence >= 0:
            length = work.lengths[sequence]
            start, stop, whole = self.schedule.part(work, sequence, length)
            self.begin(wg, storage, work, length, start * KEYS, taken & 1)
            even, odd = (stop - start + 1) // 2, (stop - start) // 2
            if const_expr(side == Side.LEFT):
                queries = self.first_queries(storage, taken & 1)
                self.left_tiles(wg, even, odd, evens, queries)
            else:
                self.queries.await_rest(storage, taken & 1)
                self.right_tiles(wg, even, odd, odds)
            self.finish(wg, storage, work, outputs, slots, sequence, (start, stop, whole), side)
            # After their last use, which may have been as the output's way out.
            if even > odd:
                self.release(wg, Free.EVEN_LEFT + side)
            else:
                self.release(wg, Free.ODD_LEFT + side)
            taken, evens, odds = taken + 1, evens + even, odds + odd
            sequence = following(work, sequence)
