"""FlashAttention on Hopper v1: up to 64 queries of a head are one tile of both warpgroups.

Each takes every other step of keys, and the second hands its sums and output to the first within
the block: ``kit/shared_rows.py``. Rows that do not exist cost no product of a warpgroup, and no
softmax of a warp.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.shared_rows import SharedRowsKernel
from mla_var3.kernel.cute_python.kit.shared_rows_plan import SharedRowsPlan


class Kernel(SharedRowsKernel):
    """One tile of queries, in registers of both warpgroups."""


@dataclass(frozen=True, kw_only=True)
class Plan(SharedRowsPlan):
    """Problem and launch; more queries than a tile have rows of their own, as in the base."""

    few_kernel = Kernel
