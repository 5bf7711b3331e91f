"""Row tiles in pairs that share their keys, where these are odd in number: one tile is left over.

All clusters have two CTAs. Those of a pair take two row tiles of one worker and load keys for each
other. Those of single tiles take the last row tile of two workers: each loads all its keys itself,
and the two have nothing in common but the cluster. So a worker of three row tiles takes three SMs,
and loads its keys twice, not three times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.pages import as_token_rows, page_loads
from mla_var3.kernel.cute_python.kit.prompt import PromptSchedule
from mla_var3.kernel.cute_python.kit.rings import Free, latent_storage
from mla_var3.kernel.cute_python.kit.schedule import rank_in_cluster
from mla_var3.kernel.cute_python.kit.slabs import KEYS, ROWS, SLAB, slab_layout
from mla_var3.kernel.cute_python.kit.threes import ThreesKernel
from mla_var3.kernel.cute_python.kit.units import UnitsKernel, UnitsSchedule
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS, Side, Warpgroup

#: CTAs of a cluster.
PAIR = 2

#: Views of a warpgroup, the CTA beside this one that reads the same keys (alone, this one), and
#: keys that came with one load.
PairsWarpgroup = NamedTuple(
    "PairsWarpgroup", [*Warpgroup.__annotations__.items(), ("peer", Int32), ("box", Int32)]
)


@dataclass(frozen=True)
class PairsSchedule(PromptSchedule):
    """The even schedule over pairs of row tiles, then over single ones, from the last worker on."""

    def launch(self, q, cuts):
        """Grid and cluster of a launch on q [b,s,h,512]."""
        workers, tiles = cuts.shape[0], cute.ceil_div(q.shape[1] * q.shape[2], ROWS)
        clusters = workers * (tiles // PAIR) + cute.ceil_div(workers * (tiles % PAIR), PAIR)
        return {"grid": (clusters * PAIR, 1, 1), "cluster": (PAIR, 1, 1)}

    @cute.jit
    def place_in_grid(self, workers, tiles):
        """Worker, group of row tiles, row tile; whether it is alone, and whether it has no work."""
        pairs = tiles // PAIR
        cluster = cute.arch.make_warp_uniform(cute.arch.cluster_idx()[0])
        rank, single = rank_in_cluster(), cluster - workers * pairs
        alone = single >= 0
        number = cutlass.select_(alone, PAIR * single + rank, cluster // pairs)
        group = cutlass.select_(alone, pairs, cluster % pairs)
        block = PAIR * group + cutlass.select_(alone, 0, rank)
        # With an odd number of single tiles the last CTA has none.
        worker = cutlass.max(workers - 1 - number, 0)
        return worker, group, block, Int32(alone), number >= workers


@dataclass(frozen=True)
class AloneSchedule(UnitsSchedule):
    """What the loads of a single tile ask of a schedule: no CTA shares its keys."""

    def rank(self):
        """This CTA among those that share keys."""
        return 0


class AloneKernel(UnitsKernel):
    """Producer warps of a single tile; nothing else of it is launched."""

    def __init__(self, lazy, box):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            box: Keys that one load takes.
        """
        super().__init__(lazy, 1, box)
        self.schedule = AloneSchedule(1)


@cute.jit
def hide_in_either(wg, tile):
    """Hide the keys that a row does not see, and places without keys, in boxes of ``wg.box``."""
    for i in range_constexpr(cute.size(wg.score)):
        column = 8 * (i // 4) + 2 * (wg.lane % 4) + i % 2
        place = column & (wg.box - 1)
        first = tile * KEYS + column - place
        kept = cutlass.max(cutlass.min(wg.limit[3] - first, wg.box), 0)
        place = place - (wg.box - kept)  # among the keys of the box
        hidden = (place < 0) | (first + place >= wg.limit[i // 2 % 2])
        wg.score[i] = -Float32.inf if hidden else wg.score[i]


class PairsKernel(ThreesKernel):
    """Host and device half of two row tiles and more."""

    def __init__(self, lazy, box, single, keep=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            box: Keys that one load of a pair takes.
            single: Keys that one load of a single tile takes: as many, or twice.
            keep: Whether L2 keeps keys as long as anything else.
        """
        super().__init__(lazy, PAIR, box, keep)
        self.single = single
        self.schedule, self.alone = PairsSchedule(PAIR), AloneKernel(lazy, single)
        self.alone.policy = self.policy
        if single != box:
            self.hide = hide_in_either

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        table: cute.Tensor,
        lengths: cute.Tensor,
        cuts: cute.Tensor,
        places: cute.Tensor,
        signals: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        masked: Int32,
        scale_log2: Float32,
        lse_unit: Float32,
        lse_empty: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [b,s,h,512], qpe [b,s,h,64], z [pages,page,512], kpe [pages,page,64]."""
        self.dtype = self.out_dtype = self.alone.dtype = q.element_type
        self.storage = latent_storage(
            q.element_type, self.queries.barriers, self.rings, self.epilogue.fields()
        )
        slab = cute.slice_(slab_layout(self.dtype, 1), (None, None, 0))
        load = cpasync.CopyBulkTensorTileG2SOp()
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_token_rows(x), slab, (SLAB, SLAB))
            for x in (q, qpe)
        ]
        boxes = (self.box, PAIR), (self.single, 1)
        keys = [page_loads(x, box, share) for box, share in boxes for x in (z, kpe)]
        store = cpasync.CopyBulkTensorTileS2GOp()
        store_o = cpasync.make_tiled_tma_atom(store, as_token_rows(o), slab, (SLAB, SLAB))
        loads = (*load_q, *load_qpe), tuple(x for pair in keys for x in pair)
        outputs = (*store_o, lse, lse_unit, lse_empty)
        where, slots = (table, lengths, cuts), (places, signals, o)
        self.paged_attention(*loads, where, slots, outputs, masked, scale_log2).launch(
            **self.schedule.launch(q, cuts),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            cooperative=True,  # all CTAs run at once, as they must where three share a sequence
        )

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: half a tile of each pair, of keys that both CTAs read or this one alone."""
        if work.alone == 0:
            ThreesKernel.produce(self, storage, q_tensors, kv_tensors[:4], work, group)
        else:
            self.alone.produce(storage, q_tensors, kv_tensors[4:], work, group)

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, slots, side: cutlass.Constexpr):
        """One warpgroup, from queries to its half of the output, sequence after sequence."""
        rank = rank_in_cluster()
        peer = cutlass.select_(work.alone == 0, rank ^ 1, rank)
        box = cutlass.select_(work.alone == 0, self.box, self.single)
        wg = PairsWarpgroup(*self.views(storage, scale_log2, side), peer=peer, box=box)
        taken, evens, odds = Int32(0), Int32(0), Int32(0)  # sequences and tiles before this one
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
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

    @cute.jit
    def release(self, wg, which: cutlass.Constexpr):
        """Give back a place in shared memory, to both CTAs that fill it; alone, twice to one."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(wg.free + which)
            if const_expr(which < Free.Q):
                cute.arch.mbarrier_arrive(wg.free + which, wg.peer)
