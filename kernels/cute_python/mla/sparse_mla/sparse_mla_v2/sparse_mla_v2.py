"""Sparse MLA v2: two producer warps fill the even tiles and two the odd ones, in one launch.

As v1, but the bytes of one tile are under way while those of the other are converted, parts of
lists are merged within attention, as in v17 of flash_mla, and with ``share=2`` two CTAs with the
same list convert half of each tile for both (kit/alternate.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.alternate import AlternateKernel
from mla_var3.kernel.cute_python.kit.alternate_plan import AlternatePlan


class Kernel(AlternateKernel):
    """Producers alternate."""


@dataclass(frozen=True, kw_only=True)
class Plan(AlternatePlan):
    """Problem and launch."""

    kernel = Kernel
