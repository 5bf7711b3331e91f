"""FlashMLA v18: what runs once per part of a sequence is little code.

As v16, with one loop for all tiles, one pass where two parts meet, and merges by all workers that
end with the same sequence; the schedule counts what each part adds to a merge.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.joined_plan import JoinedPlan
from mla_var3.kernel.cute_python.kit.short import ShortKernel

#: What it costs to begin a sequence, the least part, and what it costs to merge three parts of one
#: and more, in tiles; what each of these adds, in sixteenths.
BEGIN, LEAST, JOIN, EACH = 2, 4, 6, 2


class Kernel(ShortKernel):
    """Fetches little code."""


@dataclass(frozen=True, kw_only=True)
class Plan(JoinedPlan):
    """Problem and launch."""

    kernel = Kernel
    begin = BEGIN
    least = LEAST
    join = JOIN
    each = EACH
