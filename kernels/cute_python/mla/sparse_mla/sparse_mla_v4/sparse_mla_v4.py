"""Sparse MLA v4: producers hold the next tile's tokens in registers while they convert this one's.

Consumers keep all queries in shared memory, so that producers have registers for that
(kit/resident.py, kit/window.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.merged_plan import MergedPlan
from mla_var3.kernel.cute_python.kit.window import WindowKernel


class Kernel(WindowKernel):
    """Tokens pass through registers alone."""


@dataclass(frozen=True, kw_only=True)
class Plan(MergedPlan):
    """Problem and launch."""

    kernel = Kernel
