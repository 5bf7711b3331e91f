"""FlashMLA v8: a cluster's partial outputs merge 64 columns at a time, through DSMEM.

The queries are done with before the last weights are, so their place takes what the peer sends, and
the CTAs agree on that while they still multiply. Each piece of 64 columns is stored asynchronously
and counts its bytes on a barrier of its own, so that it is merged, rounded and sent on while the
next ones arrive. v7 waits for both CTAs twice in between.

Pieces are ``ClusterPieceEpilogue`` of kit/piece_epilogue.py, over ``send_pieces`` of kit/dsmem.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.cluster_plan import ClusterPlan
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.piece_epilogue import ClusterPieceEpilogue


class Kernel(LatentKernel):
    """Halves are exchanged in pieces, by asynchronous stores to the other CTA."""

    epilogue_type = ClusterPieceEpilogue
    early_merge = True


@dataclass(frozen=True, kw_only=True)
class Plan(ClusterPlan):
    """Problem and launches."""

    kernel = Kernel
