"""FlashMLA v17: parts of sequences pass through L2 in two bytes a value instead of four.

All workers that end with a sequence merge it, also the one that finishes it; the schedule counts
what each part adds to that.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.halved import HALVED_PLACE, HalvedKernel
from mla_var3.kernel.cute_python.kit.joined_plan import JoinedPlan


class Kernel(HalvedKernel):
    """Leaves parts in fp16, scaled by powers of two."""


@dataclass(frozen=True, kw_only=True)
class Plan(JoinedPlan):
    """Problem and launch."""

    kernel = Kernel
    schedule = Even(2, join=4, each=2)
    place = HALVED_PLACE
