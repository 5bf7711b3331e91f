"""FlashMLA v16: nothing is left to compute between the moment a tile is free and its loads.

As v15, but the page of a box and its row there, which takes a division, are found a tile ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.ahead import AheadKernel
from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.joined_plan import JoinedPlan


class Kernel(AheadKernel):
    """Merges as v15; loads wait for nothing but their tile."""


@dataclass(frozen=True, kw_only=True)
class Plan(JoinedPlan):
    """Problem and launch."""

    kernel = Kernel
    schedule = Even(2, join=6)
