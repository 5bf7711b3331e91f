"""Sparse MLA, base: producer warps gather fp8 tokens and convert them to fp16 (kit/sparse.py).

The producer warps gather the rows that a list names, turn e4m3 into fp16 in registers, two values
at a time and each pair multiplied by its scale, and write the tiles that the dense kernel reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.sparse import SparseKernel
from mla_var3.kernel.cute_python.kit.sparse_plan import SparsePlan


class Kernel(SparseKernel):
    """Each CTA converts all that it reads."""


@dataclass(frozen=True, kw_only=True)
class Plan(SparsePlan):
    """Problem and launches."""

    kernel = Kernel
