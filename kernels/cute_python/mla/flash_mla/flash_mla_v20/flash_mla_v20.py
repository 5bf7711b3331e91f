"""FlashMLA v20: what a part of a sequence costs is less; the rest is v19.

Keys of the next sequence load while a part leaves; cuts lie between pairs of tiles; workers that
merge a sequence ask L2 for its parts and add them in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.thin_paged import ThinPagedKernel
from mla_var3.kernel.cute_python.kit.thin_paged_plan import EitherPlan
from mla_var3.kernel.cute_python.kit.units import UnitsKernel

#: What it costs to begin a sequence, the least part, and what it costs to merge three parts of one
#: and more, in tiles; what each of these adds, in sixteenths; tiles between which no cut is made.
BEGIN, LEAST, JOIN, EACH, GRAIN = 2, 4, 6, 2, 1


class Kernel(UnitsKernel):
    """Rows are rows of the matrix instructions."""


class Thin(ThinPagedKernel):
    """Rows are columns of the matrix instructions."""


@dataclass(frozen=True, kw_only=True)
class Plan(EitherPlan):
    """Problem and launch."""

    kernel = Kernel
    thin = Thin
    begin = BEGIN
    least = LEAST
    join = JOIN
    each = EACH
    grain = GRAIN
