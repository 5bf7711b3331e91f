"""Blackwell MLA, base: 128 rows per CTA and half of the output's columns in its tensor memory.

Two CTAs take the same rows and keys (``kit/tall_kernel.py``): each makes all scores and accumulates
256 of the 512 columns. One warp loads, one multiplies, four turn scores into weights. Keys come
from pages, under the even schedule, and parts of sequences are merged by a second kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.tall_kernel import TallKernel
from mla_var3.kernel.cute_python.kit.tensor_plan import TensorPlan


class Kernel(TallKernel):
    """Scores and values one after the other, tile by tile."""


@dataclass(frozen=True, kw_only=True)
class Plan(TensorPlan):
    """Problem and launches."""

    tensor_kernel = Kernel
