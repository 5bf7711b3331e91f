"""FlashMLA v7: clusters of four CTAs share keys by TMA multicast, and split them as well.

Of the four CTAs of a cluster two hold neighboring row tiles and one half of the keys, which they
share as in v4; the other two hold the same row tiles and the other half, and each merges with one
of the first two as in v3. With many row tiles four neighbors may share their keys instead. A slab
crosses L2 half as often as in v6.

What a cluster may share and split is ``ClusterPlan`` of kit/cluster_plan.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from mla_var3.kernel.cute_python.kit.cluster_plan import ClusterPlan
from mla_var3.kernel.cute_python.kit.dsmem import add_half, send_half
from mla_var3.kernel.cute_python.kit.epilogue import ClusterEpilogue
from mla_var3.kernel.cute_python.kit.handovers import cluster_sync
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.schedule import rank_in_cluster


class Epilogue(ClusterEpilogue):
    """Of four CTAs of a cluster two hold the same rows."""

    @cute.jit
    def exchange(self, wg, storage, exchanged, split, side: cutlass.Constexpr):
        """Give one half to the CTA that holds the same rows, and merge the other."""
        peer = (rank_in_cluster() + self.share) % (self.splits * self.share)
        cluster_sync()  # the peer has read its tiles
        if split != side:
            send_half(storage.kv, peer, wg.out, wg.row_max, wg.row_sum, wg.row, wg.lane)
        cluster_sync()  # and has sent its half
        if split == side:
            add_half(storage.kv, wg.out, wg.row_max, wg.row_sum, wg.row)


class Kernel(LatentKernel):
    """Clusters of up to four."""

    epilogue_type = Epilogue
    early_merge = True


@dataclass(frozen=True, kw_only=True)
class Plan(ClusterPlan):
    """Problem and launches."""

    kernel = Kernel
