"""Test cases of ``check``: each small problem with a tiling and a block order, covering all pairs.

A kernel that is right is so under every tiling that is valid and in every order of its blocks. The
problems take turns, so that each way of running costs no problem more.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mla_var3.errors import PlanError, TilingError
from mla_var3.runtime.execution import Order
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.tiling import Tiling

Sizes = Literal["default", "halved", "doubled"]

#: Of the chance by which problems are made.
SEED = 20
ORDERS: tuple[Order, ...] = get_args(Order)
SIZES: tuple[Sizes, ...] = get_args(Sizes)


@dataclass(frozen=True)
class Case:
    """One problem, and how it is run.

    Attributes:
        plan: The problem, with its tilings.
        sizes: How its tilings differ from the default ones.
        order: The order in which blocks start, where the language lets it be chosen.
    """

    plan: KernelPlan
    sizes: Sizes
    order: Order


def cases(plan: KernelPlan, made: int = 0) -> list[Case]:
    """The small problems of a plan, each with a tiling and an order; every pair of these occurs.

    Args:
        plan: The plan.
        made: How many problems are made beside those that the plan has.
    """
    those = [_case(small, i) for i, small in enumerate(plan.check_plans())]
    return [*those, *_made(plan, made, len(those))]


def _made(plan: KernelPlan, count: int, first: int) -> Iterator[Case]:
    """Problems by chance, always the same, that the plan's own checks let through."""
    rng = random.Random(SEED)
    found: set[str] = set()
    for _ in range(4 * count):
        if len(found) == count:
            return
        small = plan.varied(rng)
        if small is None or small.slug() in found:
            continue
        case = _case(small, first + len(found))
        if _is_possible(case.plan):
            found.add(small.slug())
            yield case


def _is_possible(plan: KernelPlan) -> bool:
    """Whether a plan takes these sizes; what it refuses, nobody can run."""
    try:
        plan.validate()
        plan.plan(*plan.prepare_inputs("meta"))
    except (PlanError, TilingError):
        return False
    return True


def _case(plan: KernelPlan, number: int) -> Case:
    order = ORDERS[(number + number // len(SIZES)) % len(ORDERS)]
    sizes = SIZES[number % len(SIZES)]
    other = plan if sizes == "default" else resized(plan, sizes)
    return Case(other, "default" if other == plan else sizes, order)


def resized(plan: KernelPlan, sizes: Sizes) -> KernelPlan:
    """The plan with each number of its default tilings halved or doubled, where that is valid."""
    found = {}
    for stage in plan.tiling_types:
        tiling = default = plan.default_tiling(stage)
        for field in dataclasses.fields(default):
            tiling = _resized(tiling, field.name, sizes, plan)
        if tiling != default:
            found[stage] = tiling
    return dataclasses.replace(plan, tilings=found) if found else plan


def _resized(tiling: Tiling, name: str, sizes: Sizes, plan: KernelPlan) -> Tiling:
    value: Any = getattr(tiling, name)
    if type(value) is not int or (sizes == "halved" and value < 2):
        return tiling
    other = dataclasses.replace(tiling, **{name: value * 2 if sizes == "doubled" else value // 2})
    try:
        other.validate(plan)
    except TilingError:
        return tiling
    return other


def tried(ran: Sequence[tuple[Case, str | None]]) -> str:
    """What the cases that ran tried, in one line.

    Args:
        ran: Each case with the order in which its blocks started; None where it was not chosen.
    """
    return "; ".join(_parts([case for case, _ in ran], [order for _, order in ran]))


def _parts(those: list[Case], orders: list[str | None]) -> Iterator[str]:
    yield f"{len(those)} problem{'s' * (len(those) > 1)}"
    if chosen := [name for name in ORDERS if name in orders]:
        yield f"blocks started {', '.join(chosen)}"
    yield f"tilings {', '.join(s for s in SIZES if s in {case.sizes for case in those})}"
    yield from dict.fromkeys(extreme for case in those if (extreme := case.plan.extreme()))
