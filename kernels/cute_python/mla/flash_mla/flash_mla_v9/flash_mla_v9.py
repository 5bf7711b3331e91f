"""FlashMLA v9: an mbarrier per slab of Q: scores begin with the first slab (kit/queries.py).

Each slab of the queries has a barrier of its own, as those of the keys have, so that the first
scores of an item begin with the rope slabs of both and go on as slabs land. Descriptors are fetched
while barriers are set up.

These are ``SlabQueries`` of kit/queries.py and ``prefetch`` of kit/latent_kernel.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr

from mla_var3.kernel.cute_python.kit.cluster_plan import ClusterPlan
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.piece_epilogue import ClusterPieceEpilogue
from mla_var3.kernel.cute_python.kit.queries import SlabQueries
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import KEYS, ROWS
from mla_var3.kernel.cute_python.kit.warpgroups import Side, views


class Kernel(LatentKernel):
    """A barrier per slab of the queries, and descriptors ahead of the first load."""

    epilogue_type = ClusterPieceEpilogue
    queries = SlabQueries()
    prefetch = True
    early_merge = True

    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, exchanged, side: cutlass.Constexpr):
        """One warpgroup, from an item's queries to its half of the output, item after item."""
        wg = views(storage, self.dtype, scale_log2, side)
        first, count, step = self.schedule.items(work)
        taken, done = Int32(0), Int32(0)  # items, and pairs of tiles, before this item
        for item in cutlass.range(first, count, step, unroll=1):
            block, out, _, first_tile, pairs = self.schedule.place(work, item)
            self.start(wg, storage, work, block * ROWS, first_tile * KEYS, taken & 1)
            if const_expr(side == Side.LEFT):
                queries = (storage.q_full.data_ptr(), taken & 1)
                self.left(wg, pairs, done, queries)
            else:
                self.queries.await_rest(storage, taken & 1)
                self.right(wg, pairs, done)
            self.epilogue.finish(wg, storage, outputs, exchanged, block, out, item, side)
            self.release(wg, Free.ODD_LEFT + side)  # after its last use as the output's way out
            taken, done = taken + 1, done + pairs


@dataclass(frozen=True, kw_only=True)
class Plan(ClusterPlan):
    """Problem and launches."""

    kernel = Kernel
