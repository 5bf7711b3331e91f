"""Shared prefix v4: the prefix's blocks add the own tokens, without a combine (kit/merging.py).

What is left after the keys of the prefix is a product of the same shape as the output: rows of the
latent part are weights, Wv of the head is values. So it takes the last places of the rings, and no
partial result leaves a block. With one tile of rows per head each warpgroup has a head of its own,
so that all heads are under way beside the own tokens: ``kit/merging.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.merging_plan import MergingPlan


@dataclass(frozen=True, kw_only=True)
class Plan(MergingPlan):
    """Problem and launches."""
