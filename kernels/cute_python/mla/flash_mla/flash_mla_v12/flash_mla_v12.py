"""FlashMLA v12: split-KV partial results are stored 64 columns at a time, as v11's outputs are.

What v11 does with the output of one part, each 64 columns merged and sent on while the next are
awaited, happens with partial results too, so that no register holds all of them until the last.

That is ``L2PartPieceEpilogue`` of kit/piece_epilogue.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.l2_kernel import L2PieceKernel
from mla_var3.kernel.cute_python.kit.l2_plan import L2Plan
from mla_var3.kernel.cute_python.kit.piece_epilogue import L2PartPieceEpilogue


class Kernel(L2PieceKernel):
    """Pieces of partial results leave as they are merged."""

    epilogue_type = L2PartPieceEpilogue


@dataclass(frozen=True, kw_only=True)
class Plan(L2Plan):
    """Problem and launches."""

    kernel = Kernel
