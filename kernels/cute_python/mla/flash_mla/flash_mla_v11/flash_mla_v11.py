"""FlashMLA v11: the merge through L2 goes 64 columns at a time, which producer warps relay.

Of the half of the output that a CTA does not keep, each 64 columns are signaled by a producer warp,
since those have nothing left to load, and fetched by one of the other CTA to where the queries
were. So the writers wait for no fence, four pieces are on their way at once, and one is merged,
rounded and sent on while the next is awaited. Scores begin with the first slab of the queries, as
in v9.

Pieces and their relays are ``L2PieceEpilogue`` of kit/piece_epilogue.py, over kit/l2.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.l2_kernel import L2PieceKernel
from mla_var3.kernel.cute_python.kit.l2_plan import L2Plan


class Kernel(L2PieceKernel):
    """Pieces go through L2, relayed by producer warps: ``L2PieceEpilogue``."""


@dataclass(frozen=True, kw_only=True)
class Plan(L2Plan):
    """Problem and launches."""

    kernel = Kernel
