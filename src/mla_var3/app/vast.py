"""Finds launches that no GPU takes, at problems far too large to be run by ``check``.

Such a problem is planned without memory, and only the grids of its launches are looked at. Blocks
that have to run at once are held to one per multiprocessor, as is the rule of all kernels here,
where few long items are shared; of more rows than that the launch itself says so.
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
    shared = plan.shared_out()
    for one in (*plan.vast(), *shared):
        try:
            one.validate()
            stages = one.plan(*one.prepare_inputs("meta")).stages()
        except HyperMlaError:
            continue
        for name, kernel in stages:
            language = languages.find(kernel.language)
            try:
                grid = language.grid(kernel)
            except TilingError as error:
                return f"{one.slug()} cannot be launched: {error}"
            sms = one.target.sm_count
            room = sms + sms % 2  # Clusters of two, on the odd counts that problems are made for.
            if one in shared and math.prod(grid) > room and language.is_cooperative(kernel):
                return (
                    f"{one.slug()} cannot be launched: {name} has a grid of {grid} whose blocks "
                    f"have to run at once, and the GPU has {sms} multiprocessors"
                )
            limits = (*GRID_LIMITS, math.inf)
            if any(extent > most for extent, most in zip(grid, limits, strict=False)):
                return f"{one.slug()} cannot be launched: {name} has a grid of {grid}"
    return ""
