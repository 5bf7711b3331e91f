"""FlashMLA v25: a pair of row tiles asks L2 for keys ahead; the rest is v24."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.asked import AskedKernel
from mla_var3.kernel.cute_python.kit.early_maxima import EarlyMaxima
from mla_var3.kernel.cute_python.kit.finer import Finer
from mla_var3.kernel.cute_python.kit.odd_plan import OddPlan
from mla_var3.kernel.cute_python.kit.odd_tiles import PairsKernel
from mla_var3.kernel.cute_python.kit.thin_paged import ThinPagedKernel


class Kernel(EarlyMaxima, AskedKernel):
    """Rows are rows of the matrix instructions; all row tiles share keys, or none does."""


class Odd(EarlyMaxima, PairsKernel):
    """The same, where all row tiles but one share keys."""


class Thin(ThinPagedKernel):
    """Rows are columns of the matrix instructions."""


@dataclass(frozen=True, kw_only=True)
class Plan(OddPlan):
    """Problem and launch."""

    kernel = Kernel
    odd = Odd
    thin = Thin
    schedule = Finer()
