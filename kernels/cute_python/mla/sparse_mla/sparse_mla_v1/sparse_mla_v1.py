"""Sparse MLA v1: bytes arrive by asynchronous copies, and are converted within their tile.

As v0, but the bytes of a tile's tokens go straight to shared memory, into the half of the tile that
its readers let go of first, and are converted from there (kit/gather.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.gather import GatherKernel
from mla_var3.kernel.cute_python.kit.sparse_plan import SparsePlan


class Kernel(GatherKernel):
    """Each CTA converts all that it reads."""


@dataclass(frozen=True, kw_only=True)
class Plan(SparsePlan):
    """Problem and launches."""

    kernel = Kernel
