"""FlashMLA v19: up to 32 rows of a sequence are columns of the matrix instructions, keys its rows.

As v18 where rows are more. Where they are few, the products are thin_mla's, over pages and under
the even schedule; parts of a sequence meet through L2 in the same launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.short import ShortKernel
from mla_var3.kernel.cute_python.kit.thin_paged import ThinPagedKernel
from mla_var3.kernel.cute_python.kit.thin_paged_plan import EitherPlan


class Kernel(ShortKernel):
    """Rows are rows of the matrix instructions."""


class Thin(ThinPagedKernel):
    """Rows are columns of the matrix instructions."""


@dataclass(frozen=True, kw_only=True)
class Plan(EitherPlan):
    """Problem and launch."""

    kernel = Kernel
    thin = Thin
    schedule = Even(2, least=4, join=6, each=2)
