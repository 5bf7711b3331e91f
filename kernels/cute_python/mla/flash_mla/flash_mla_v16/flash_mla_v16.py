"""FlashMLA v16: nothing is left to compute between the moment a tile is free and its loads.

As v15, but the page of a box and its row there, which takes a division, are found a tile ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.ahead import AheadKernel
from mla_var3.kernel.cute_python.kit.joined_plan import JoinedPlan

#: What it costs to begin a sequence, and to merge three parts of one and more, in tiles.
BEGIN, JOIN = 2, 6


class Kernel(AheadKernel):
    """Merges as v15; loads wait for nothing but their tile."""


@dataclass(frozen=True, kw_only=True)
class Plan(JoinedPlan):
    """Problem and launch."""

    kernel = Kernel
    begin = BEGIN
    join = JOIN
