"""FlashMLA v24: maxima are published before weights are made under them; the rest is v23."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.early_maxima import EarlyMaxima
from mla_var3.kernel.cute_python.kit.finer import Finer
from mla_var3.kernel.cute_python.kit.odd_plan import OddPlan
from mla_var3.kernel.cute_python.kit.odd_tiles import PairsKernel
from mla_var3.kernel.cute_python.kit.thin_paged import ThinPagedKernel
from mla_var3.kernel.cute_python.kit.threes import ThreesKernel


class Kernel(EarlyMaxima, ThreesKernel):
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
