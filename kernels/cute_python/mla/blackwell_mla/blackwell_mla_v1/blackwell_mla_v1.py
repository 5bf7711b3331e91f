"""Blackwell MLA v1: two CTAs multiply as one, 64 rows each, and make each score once.

A pair takes 128 keys at a time (``kit/pair_kernel.py``). Each CTA loads half of the keys for the
scores, and half of the columns for the output, whose 64 rows of 512 columns take half of its tensor
memory. The scores of the next tile are made while those of this one become weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.pair_kernel import PairKernel
from mla_var3.kernel.cute_python.kit.tensor_plan import TensorPlan


class Kernel(PairKernel):
    """Scores of a tile ahead of its values."""


@dataclass(frozen=True, kw_only=True)
class Plan(TensorPlan):
    """Problem and launches."""

    tensor_kernel = Kernel
