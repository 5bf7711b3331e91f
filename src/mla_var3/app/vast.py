"""Finds launches that no GPU takes, at problems far too large to be run by ``check``.

Such a problem is planned without memory, and only the grids of its launches are looked at.
"""

from __future__ import annotations

import math

from mla_var3 import languages
from mla_var3.errors import HyperMlaError, TilingError
from mla_var3.runtime.kernel import GRID_LIMITS
from mla_var3.runtime.plan import KernelPlan


def refused(plan: KernelPlan) -> str:
    """The first launch of a plan's vast problems that no GPU takes; empty where there is none.

    What a plan refuses itself is no finding: it says so.
    """
    for one in plan.vast():
        try:
            one.validate()
            stages = one.plan(*one.prepare_inputs("meta")).stages()
        except HyperMlaError:
            continue
        for name, kernel in stages:
            try:
                grid = languages.find(kernel.language).grid(kernel)
            except TilingError as error:
                return f"{one.slug()} cannot be launched: {error}"
            limits = (*GRID_LIMITS, math.inf)
            if any(extent > most for extent, most in zip(grid, limits, strict=False)):
                return f"{one.slug()} cannot be launched: {name} has a grid of {grid}"
    return ""
