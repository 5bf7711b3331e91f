"""FlashMLA v17: parts of sequences pass through L2 in two bytes a value instead of four.

All workers that end with a sequence merge it, also the one that finishes it; the schedule counts
what each part adds to that.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.halved import HALVED_PLACE, HalvedKernel
from mla_var3.kernel.cute_python.kit.joined_plan import JoinedPlan

#: What it costs to begin a sequence, and to merge three parts of one and more, in tiles, and what
#: each of these adds, in sixteenths.
BEGIN, JOIN, EACH = 2, 4, 2


class Kernel(HalvedKernel):
    """Leaves parts in fp16, scaled by powers of two."""


@dataclass(frozen=True, kw_only=True)
class Plan(JoinedPlan):
    """Problem and launch."""

    kernel = Kernel
    begin = BEGIN
    join = JOIN
    each = EACH
    place = HALVED_PLACE
