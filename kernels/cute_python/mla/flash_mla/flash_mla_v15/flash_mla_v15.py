"""FlashMLA v15: parts that many workers share are merged by bulk copies, in little code.

As v14, but where three workers and more have a sequence each fetches its columns of all parts at
once, to where keys and queries were, and one small loop adds them.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.joined_plan import JoinedPlan
from mla_var3.kernel.cute_python.kit.staged import StagedKernel


class Kernel(StagedKernel):
    """Merges by those who end with the same sequence, from shared memory."""


@dataclass(frozen=True, kw_only=True)
class Plan(JoinedPlan):
    """Problem and launch."""

    kernel = Kernel
    schedule = Even(2, join=6)
