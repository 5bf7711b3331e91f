"""Shared prefix, base: own tokens, prefix and combine, three kernels launched one after another."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.prefix_plan import SharedPrefixPlan


@dataclass(frozen=True, kw_only=True)
class Plan(SharedPrefixPlan):
    """Problem and launches."""
