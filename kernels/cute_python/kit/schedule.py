"""Tile schedulers of latent attention: which row tiles and which split of the keys a CTA takes.

An item is a place in the output: neighboring row tiles of a sequence that share their keys, and a
part of these keys where there are several. Persistent CTAs take item after item.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from mla_var3.kernel.cute_python.kit.masks import seen_by_any
from mla_var3.kernel.cute_python.kit.slabs import KEYS, ROWS


def rank_in_cluster():
    """This CTA's number in its cluster."""
    return cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())


@dataclass(frozen=True)
class Schedule:
    """Persistent clusters of CTAs that share keys; the splits of an item are in neighbors.

    Attributes:
        causal: Whether the mask is causal.
        splits: CTAs that split the keys of an item.
        share: Row tiles of a cluster.
        blocks: CTAs, all of which run at once.
    """

    causal: bool
    splits: int
    share: int
    blocks: int

    def cluster(self):
        """CTAs of a cluster."""
        return self.share

    def launch(self, q, o):
        """Grid and cluster of a launch on q [b,h,s,512] and o, one output per part."""
        _, h, s, _ = q.shape
        cluster = self.cluster()
        clusters = cutlass.min(self.blocks // cluster, self.count(h * s, o.shape[0]))
        return {"grid": (clusters * cluster, 1, 1), "cluster": (cluster, 1, 1)}

    def count(self, rows, outputs):
        """Items of ``outputs`` (parts of sequences) of so many rows."""
        return cute.ceil_div(rows, ROWS * self.share) * outputs * self.splits

    def work(self, cta, z, o, lse):
        """Rows, queries, keys, sequences, and the parts of each, which are outputs of their own."""
        return o.shape[0], lse.shape[2], z.shape[0], z.shape[2], o.shape[2] // z.shape[2]

    def rank(self):
        """This CTA among those that share keys."""
        return rank_in_cluster()

    @cute.jit
    def items(self, work):
        """First item of this cluster, one past the last, and the step."""
        rows, _, _, sequences, parts = work
        count = self.count(rows, sequences * parts)
        return cute.arch.cluster_idx()[0], count, cute.arch.cluster_dim()[0]

    @cute.jit
    def place(self, work, item):
        """Row tile, output and sequence of this CTA, its first key tile, its pairs of key tiles."""
        rows, queries, keys, sequences, parts = work
        groups = cute.ceil_div(rows, ROWS * self.share)
        rank = rank_in_cluster()
        split, item = item % self.splits, item // self.splits
        block = item % groups * self.share + rank
        first, height = item % groups * self.share * ROWS, self.share * ROWS
        tiles = cute.ceil_div(seen_by_any(first, queries, keys, self.causal, height), KEYS)
        pairs = cutlass.max(cute.ceil_div(tiles, 2 * self.splits * parts), 1)
        out = item // groups
        split = out // sequences * self.splits + split
        return block, out, out % sequences, split * 2 * pairs, pairs

    def readers(self):
        """Mask of the CTAs of the cluster that a slab of keys goes to."""
        return cutlass.Int16((1 << self.share) - 1)

    def reader(self, i):
        """The one of these CTAs with number ``i``."""
        return i


class ClusterSchedule(Schedule):
    """The CTAs that split the keys of an item are in one cluster."""

    def cluster(self):
        """CTAs of a cluster."""
        return self.splits * self.share

    def count(self, rows, outputs):
        """Items of ``outputs`` (parts of sequences) of so many rows."""
        return cute.ceil_div(rows, ROWS * self.share) * outputs

    def rank(self):
        """This CTA among those that share keys."""
        return rank_in_cluster() % self.share

    @cute.jit
    def place(self, work, item):
        """Row tile, output and sequence of this CTA, its first key tile, its pairs of key tiles."""
        rows, queries, keys, sequences, parts = work
        groups = cute.ceil_div(rows, ROWS * self.share)
        rank = rank_in_cluster()
        block = item % groups * self.share + rank % self.share
        first, height = item % groups * self.share * ROWS, self.share * ROWS
        tiles = cute.ceil_div(seen_by_any(first, queries, keys, self.causal, height), KEYS)
        pairs = cutlass.max(cute.ceil_div(tiles, 2 * self.splits * parts), 1)
        out = item // groups
        split = out // sequences * self.splits + rank // self.share
        return block, out, out % sequences, split * 2 * pairs, pairs

    def first_reader(self):
        """The first CTA of the cluster that holds the same keys as this one."""
        if self.splits == 1:
            return 0
        return rank_in_cluster() // self.share * self.share

    def readers(self):
        """Mask of the CTAs of the cluster that a slab of keys goes to."""
        return cutlass.Int16(((1 << self.share) - 1) << self.first_reader())

    def reader(self, i):
        """The one of these CTAs with number ``i``."""
        return self.first_reader() + i


class WholeSchedule(ClusterSchedule):
    """All keys of an item are in one cluster: an output has one part."""

    def work(self, cta, z, o, lse):
        """Rows, queries, keys, sequences, and one part of each."""
        return o.shape[0], lse.shape[2], z.shape[0], o.shape[2], 1

    @cute.jit
    def place(self, work, item):
        """Row tile, output and sequence of this CTA, its first key tile, its pairs of key tiles."""
        rows, queries, keys, _, _ = work
        groups = cute.ceil_div(rows, ROWS * self.share)
        rank = rank_in_cluster()
        block = item % groups * self.share + rank % self.share
        first, height = item % groups * self.share * ROWS, self.share * ROWS
        tiles = cute.ceil_div(seen_by_any(first, queries, keys, self.causal, height), KEYS)
        pairs = cutlass.max(cute.ceil_div(tiles, 2 * self.splits), 1)
        return block, item // groups, item // groups, rank // self.share * 2 * pairs, pairs
