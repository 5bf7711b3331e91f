"""Epilogues of latent attention: merge with the CTA that has the same rows, and output store.

Where the keys of a row tile are split over two CTAs, the first keeps left and the other right: each
gives the half that it does not keep to the other. That happens through distributed shared memory in
a cluster, or through L2; a half goes whole, or in pieces of 64 columns that are merged, rounded and
sent on while the next ones arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.dsmem import add_half, send_half
from mla_var3.kernel.cute_python.kit.handovers import cluster_sync
from mla_var3.kernel.cute_python.kit.l2 import leave_half, take_half
from mla_var3.kernel.cute_python.kit.schedule import rank_in_cluster
from mla_var3.kernel.cute_python.kit.slabs import SLAB, as_rows, as_vector
from mla_var3.kernel.cute_python.kit.stores import (
    complete_sums,
    inverse_sum,
    send_output,
    store_fragments,
    store_lse,
    store_partial,
)
from mla_var3.kernel.cute_python.kit.warpgroups import Side


@dataclass(frozen=True)
class Epilogue:
    """No other CTA holds the same rows; the output leaves whole, by TMA.

    Attributes:
        splits: CTAs that split the keys of a row tile.
        share: Row tiles of a cluster.
        partial: Whether outputs are parts, in fp32, for a merge.
    """

    splits: int = 1
    share: int = 1
    partial: bool = False

    # ---- what emits nothing here -----------------------------------------------------------
    def fields(self):
        """Further fields of shared memory, before the slabs."""
        return {}

    def init(self, storage):
        """Further barriers; from one thread."""

    def relay(self, storage, exchanged, group):
        """What a producer warp does once nothing is left to load."""

    def drain(self):
        """What all producer warps take part in then."""

    def offer(self):
        """The queries of an item are read."""

    def offer_last(self, more):
        """The same, of the side that reads them in every pair."""

    def exchange(self, wg, storage, exchanged, split, side):
        """Give one half to the CTA that holds the same rows, and merge the other."""

    # ---- outputs ---------------------------------------------------------------------------
    def outputs(self, o, lse, slab, load):
        """What the device half takes of o and lse: an atom of TMA, o as rows, and lse."""
        if self.partial:  # stored without TMA
            return load[0], as_rows(o), lse
        store = cpasync.CopyBulkTensorTileS2GOp()
        return *cpasync.make_tiled_tma_atom(store, as_rows(o), slab, (SLAB, SLAB)), lse

    def split(self, item):
        """This CTA's number among those that split the keys."""
        return item % self.splits

    @cute.jit
    def finish(self, wg, storage, outputs, exchanged, block, out, item, side: cutlass.Constexpr):
        """From a warpgroup's sums and fragments to its half of the output."""
        complete_sums(wg, side)
        if const_expr(self.splits == 1):
            self.store(wg, storage, outputs, block, out, side)
        else:
            split = self.split(item)
            self.exchange(wg, storage, exchanged, split, side)
            if split == side:
                self.store(wg, storage, outputs, block, out, side)

    @cute.jit
    def store(self, wg, storage, outputs, block, batch, side: cutlass.Constexpr):
        """Divide by the row sums and store; left stores the LSE."""
        if const_expr(side == Side.LEFT):
            store_lse(wg, as_vector(outputs[2]), block, batch)
        inverse = [inverse_sum(wg, r) for r in range(2)]
        for i in range_constexpr(cute.size(wg.out)):
            wg.out[i] = wg.out[i] * inverse[i // 2 % 2]
        if const_expr(self.partial):
            store_partial(wg, outputs[1], block, batch, side)
        else:
            send_output(wg, storage, outputs[0], outputs[1], block, batch, side)


class FragmentEpilogue(Epilogue):
    """The output is stored as the fragments of the accumulator lie."""

    def outputs(self, o, lse, slab, load):
        """O and lse as they are; the first place is TMA's."""
        return (None, o, lse)

    @cute.jit
    def store(self, wg, storage, outputs, block, batch, side: cutlass.Constexpr):
        """Divide by the row sums and store; left stores the LSE."""
        if const_expr(side == Side.LEFT):
            store_lse(wg, as_vector(outputs[2]), block, batch)
        store_fragments(wg, as_rows(outputs[1]), block, batch, side)


class ClusterEpilogue(Epilogue):
    """Whole halves through distributed shared memory, where the keys were."""

    def split(self, item):
        """This CTA's number among those that split the keys."""
        return rank_in_cluster() // self.share

    @cute.jit
    def drain(self):
        """Producer warps take part in the two barriers of the exchange."""
        if const_expr(self.splits > 1):
            cluster_sync()
            cluster_sync()

    @cute.jit
    def exchange(self, wg, storage, exchanged, split, side: cutlass.Constexpr):
        """Give one half to the CTA that holds the same rows, and merge the other."""
        rank = rank_in_cluster()
        cluster_sync()  # the peer has read its tiles
        if split != side:
            send_half(storage.kv, 1 - rank, wg.out, wg.row_max, wg.row_sum, wg.row, wg.lane)
        cluster_sync()  # and has sent its half
        if split == side:
            add_half(storage.kv, wg.out, wg.row_max, wg.row_sum, wg.row)


class L2Epilogue(Epilogue):
    """Whole halves through L2: the CTAs that split keys are in neighboring clusters."""

    @cute.jit
    def exchange(self, wg, storage, exchanged, split, side: cutlass.Constexpr):
        """Give one half to the CTA that holds the same rows, and merge the other."""
        cta = cute.arch.block_idx()[0]  # the other's cluster is the one beside this one
        if split != side:
            leave_half(*exchanged, cta, wg.out, wg.row_max, wg.row_sum, wg.row, wg.lane)
        else:
            peer = cta ^ self.share
            take_half(*exchanged, peer, wg.out, wg.row_max, wg.row_sum, wg.row, wg.lane)
