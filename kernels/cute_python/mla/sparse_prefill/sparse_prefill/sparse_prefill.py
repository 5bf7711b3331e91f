"""Sparse prefill, base: the kernel behind ``flash_mla_sparse_fwd`` (kit/prefill.py).

Lists are taken whole, one after another, by CTAs of 64 heads; where they are so few that SMs would
be idle, each is cut into parts, which the CTAs that share a list merge (kit/prefill_parts.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.prefill_plan import PrefillPlan


@dataclass(frozen=True, kw_only=True)
class Plan(PrefillPlan):
    """Problem and launch."""
