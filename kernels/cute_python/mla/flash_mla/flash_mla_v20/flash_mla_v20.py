"""FlashMLA v20: where many rows are merged, parts come from L2 into registers; the rest is v19."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.thin_paged import ThinPagedKernel
from mla_var3.kernel.cute_python.kit.thin_paged_plan import EitherPlan
from mla_var3.kernel.cute_python.kit.units import UnitsKernel


class Kernel(UnitsKernel):
    """Rows are rows of the matrix instructions."""


class Thin(ThinPagedKernel):
    """Rows are columns of the matrix instructions."""


@dataclass(frozen=True, kw_only=True)
class Plan(EitherPlan):
    """Problem and launch."""

    kernel = Kernel
    thin = Thin
    schedule = Even(2, least=4, join=6, each=2)
