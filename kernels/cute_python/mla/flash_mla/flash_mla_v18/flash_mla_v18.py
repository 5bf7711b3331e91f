"""FlashMLA v18: what runs once per part of a sequence is little code.

As v16, with one loop for all tiles, one pass where two parts meet, and merges by all workers that
end with the same sequence; the schedule counts what each part adds to a merge.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.joined_plan import JoinedPlan
from mla_var3.kernel.cute_python.kit.short import ShortKernel


class Kernel(ShortKernel):
    """Fetches little code."""


@dataclass(frozen=True, kw_only=True)
class Plan(JoinedPlan):
    """Problem and launch."""

    kernel = Kernel
    schedule = Even(2, least=4, join=6, each=2)
