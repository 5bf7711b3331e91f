"""Hopper attention v2: ping-pong of two warpgroups at the tensor cores (kit/turns.py).

A warpgroup issues its products when the other has issued its own, so that the softmax of one runs
under the products of the other: ``kit/turns.py``, around the main loop of v1.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.head_plan import HeadPlan
from mla_var3.kernel.cute_python.kit.turns import TurnKernel


class Kernel(TurnKernel):
    """Products in turn, by one named barrier per warpgroup; a CTA per item."""


@dataclass(frozen=True, kw_only=True)
class Plan(HeadPlan):
    """Problem and launch."""

    kernel = Kernel
