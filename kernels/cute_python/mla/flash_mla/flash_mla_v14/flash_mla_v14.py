"""FlashMLA v14: what workers share of a sequence is merged within attention.

A worker that ends with a sequence that it does not finish merges that sequence, in registers where
one other has a part of it, and else some columns of it. There is no second launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.joined import JoinedKernel
from mla_var3.kernel.cute_python.kit.joined_plan import JoinedPlan


class Kernel(JoinedKernel):
    """Merges by those who end with the same sequence."""


@dataclass(frozen=True, kw_only=True)
class Plan(JoinedPlan):
    """Problem and launch."""

    kernel = Kernel
