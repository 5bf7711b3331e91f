"""Shared prefix v3: launches overlap by programmatic dependent launch (kit/dependent.py).

The own tokens come first. The prefix is a dependent launch that does not wait: a block of its own
for each piece, so that pieces go to whichever SM is free. The combine is one too: its blocks take
SMs that come free, load Wv, and only then wait. The last block of the prefix ends after the own
tokens, so that what waits for the prefix waits for both: ``kit/dependent.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.dependent_plan import DependentPlan


@dataclass(frozen=True, kw_only=True)
class Plan(DependentPlan):
    """Problem and launches."""
