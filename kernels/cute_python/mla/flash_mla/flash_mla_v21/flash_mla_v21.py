"""FlashMLA v21: sequences are taken in an order in which few are cut; the rest is v20."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.fitted import Fitted
from mla_var3.kernel.cute_python.kit.fitted_cuts import Costs
from mla_var3.kernel.cute_python.kit.ordered import OrderedKernel
from mla_var3.kernel.cute_python.kit.ordered_plan import OrderedPlan
from mla_var3.kernel.cute_python.kit.ordered_thin import OrderedThinKernel

#: In half tiles, as measured where a worker has one part or two.
COSTS = Costs(begin=4, split=1, least=4, alone=4)


class Kernel(OrderedKernel):
    """Rows are rows of the matrix instructions."""


class Thin(OrderedThinKernel):
    """Rows are columns of the matrix instructions."""


@dataclass(frozen=True, kw_only=True)
class Plan(OrderedPlan):
    """Problem and launch."""

    kernel = Kernel
    thin = Thin
    schedule = Fitted(COSTS)
