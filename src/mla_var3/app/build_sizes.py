"""Chooses sizes for a build: problems that differ in what is given at launch alone.

Each is unlike those before it, and brings much for the steps of tiles that it takes.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mla_var3.app.builds import Built, built, turns_of
from mla_var3.runtime import cases
from mla_var3.runtime.plan import KernelPlan
from mla_var3.workloads.base import NEAR_STEPS

#: Sizes that are drawn for a build.
SIZES_DRAWN = 60
#: Problems of a build, and how many it has however long they take.
PROBLEMS, LEAST_PROBLEMS = 16, 10
#: What the blocks of one problem may do, and those of all of a build, in steps of tiles; and how
#: many steps it takes to start a problem.
MOST_STEPS, ALL_STEPS, STEPS_OF_A_PROBLEM = 120, 500, 10
#: And one at an edge, of which there are few: where clusters share keys, its blocks are many.
MOST_STEPS_OF_AN_EDGE = 2 * MOST_STEPS
#: And one of many rows, whose blocks have a step each.
MOST_STEPS_OF_ROWS = 20 * MOST_STEPS
#: Which of them is one of the workload's own problems.
PLANNED = 2
#: What it is worth, in pairs of values, that a number is one, two or more for the first time, and
#: that three traits of problems meet.
WORTH_OF_A_TURN, WORTH_OF_A_MEETING = 30, 5
#: Blocks along an axis that are several; and what a size exceeds that is more than one tile.
FEW_TILES, LONG = 2, 64
#: Multiprocessors that share few items, and how many items: kernels merge many parts in other ways
#: than few, and those of an item behind another elsewhere.
WIDE_SMS, WIDE_ITEMS = 28, (1, 2)
#: Rows of items that one multiprocessor has in turn: some kernels take few, clusters many.
ROWS_IN_TURN = (16, 65)


def sized(one: Built, seed: int, drawn: int = SIZES_DRAWN) -> Iterator[Built]:
    """Problems that take the very build, each unlike those before it."""
    pairs, turns, left = cases.Pairs(), set[tuple[str, int]](), ALL_STEPS
    pool, met = [*_alike(one, random.Random(cases.SEED + seed), drawn)], set[frozenset[str]]()
    planned, devices = [*_planned(one)], set[int]()
    traits = {id(other): (turns_of(other), _meetings(other)) for other in (*pool, *planned)}

    def news(other: Built) -> int:
        its_turns, meetings = traits[id(other)]
        new = pairs.new(other.case.plan) + WORTH_OF_A_TURN * len(its_turns - turns)
        return new + WORTH_OF_A_MEETING * len(meetings - met)

    def worth(other: Built) -> float:
        return news(other) / (other.steps + STEPS_OF_A_PROBLEM)

    best_by = {0: _depth, PLANNED: news}

    for number in range(PROBLEMS):
        pool = [other for other in pool if pairs.new(other.case.plan)]
        # What leaves a stage out is cheap, and every other problem has them all; the first goes
        # through as many steps as it may.
        whole = [other for other in pool if number % 2 == 0 and other.builds == one.builds] or pool
        least = min((other.steps for other in whole), default=0)
        most = max(least if number < LEAST_PROBLEMS else 0, min(left, ALL_STEPS // 4))
        most = most if number else max(ALL_STEPS // 2, least)
        whole = planned if number == PLANNED and planned else whole
        # Where parts are few on few multiprocessors they are many on many.
        other_devices = [x for x in whole if x.case.plan.target.sm_count not in devices]
        whole = other_devices if number > PLANNED and other_devices else whole
        fitting = [other for other in whole if other.steps <= most]
        best = max(fitting, key=best_by.get(number, worth), default=None)
        if best is None:
            return
        pairs.add(best.case.plan)
        its_turns, meetings = traits[id(best)]
        turns |= its_turns
        met |= meetings
        devices.add(best.case.plan.target.sm_count)
        left -= best.steps
        yield _near(best)


def _near(one: Built) -> Built:
    """The same with extents near its own, where these take the build, and are as large."""
    plan = one.case.plan
    other = as_built(one, plan.near(random.Random(plan.slug()), within=True))
    if other is None or other.builds != one.builds or not turns_of(one) <= turns_of(other):
        return one
    return other if other.steps <= one.steps + one.steps // NEAR_STEPS else one


def _meetings(one: Built) -> set[frozenset[str]]:
    """Three of what is uneven, long, several or extreme in a problem: faults hide where they meet.

    The mask of a tile that crosses heads takes queries that divide no tile, several tiles of rows,
    and several of keys.
    """
    plan = one.case.plan
    sizes = {n: v for n, v in plan.problem().items() if type(v) is int}
    traits = {f"{name} more than one" for name, value in sizes.items() if value > 1}
    traits |= {f"{name} uneven" for name, value in sizes.items() if value & (value - 1)}
    traits |= {f"{name} long" for name, value in sizes.items() if value > LONG}
    traits |= {f"{name} of {FEW_TILES}" for name, n in one.grids if n == FEW_TILES}
    traits |= {plan.extreme()} - {""}
    return {frozenset(x) for x in itertools.combinations(traits, 3)}


def _depth(one: Built) -> float:
    """Work per output, which grows with what a block goes through."""
    cost = one.case.plan._algorithmic_flops_bytes()
    return cost.flops / one.outputs


def wide(one: Built, those: Sequence[Built]) -> list[Built]:
    """Problems that take the build and of which many multiprocessors share one item, and two."""
    plan = dataclasses.replace(one.case.plan, tilings=dict(one.tilings))
    wide = [x for items in WIDE_ITEMS if (x := plan.shared_by(WIDE_SMS, items)) and x.is_valid()]
    found = [as_built(one, cases.on_device_of(x, WIDE_SMS)) for x in wide]
    blocks = max((each.blocks for each in those), default=0)
    # Where one item has no more blocks than others do, parts do not follow multiprocessors.
    if not found or found[0] is None or not blocks < found[0].blocks <= 2 * WIDE_SMS:
        return []
    return [x for x in found if x is not None and x.blocks <= 2 * WIDE_SMS]


def crowded(one: Built, those: Sequence[Built]) -> list[Built]:
    """The problem of many rows that takes the build, if it is none of those already."""
    asked, had = one.case.plan.crowded(), {other.case.plan.slug() for other in those}
    found = [] if asked is None else [*_sized_as(one, asked, MOST_STEPS_OF_ROWS)]
    return [other for other in found if other.case.plan.slug() not in had]


def in_turn(one: Built) -> list[Built]:
    """A problem that takes the build and of which one multiprocessor has several items in turn."""
    plan = dataclasses.replace(one.case.plan, tilings=dict(one.tilings))
    several = [x for rows in ROWS_IN_TURN if (x := plan.in_turn(rows)) and x.is_valid()]
    found = (as_built(one, cases.on_device_of(x, 1)) for x in several)
    return [*itertools.islice((x for x in found if x is not None), 1)]


def other_sides(those: Sequence[Built]) -> list[Built]:
    """A problem of a build with the other side of each flag of which all of those have one.

    None where the build takes no other: what the compiler sees of a flag is another build's.
    """
    plan = those[0].case.plan
    flags = [f.name for f in dataclasses.fields(plan) if type(getattr(plan, f.name)) is bool]
    sides = {name: {getattr(x.case.plan, name) for x in those} for name in flags}
    lacking = {name: not only for name, (only, *more) in sides.items() if not more}
    for one in sorted(those, key=lambda x: x.steps) if lacking else ():
        found = one
        for name, side in lacking.items():
            asked = with_values(
                dataclasses.replace(found.case.plan, tilings=dict(found.tilings)), {name: side}
            )
            other = as_built(those[0], asked) if asked.is_valid() else None
            found = found if other is None or other.steps > MOST_STEPS else other
        if found is not one:
            return [found]
    return []


def _planned(one: Built) -> Iterator[Built]:
    """The workload's own problems that take the very build, which were thought of for a reason."""
    plan = one.case.plan
    for known in [*plan.check_plans(), *plan.edges()]:
        yield from _sized_as(one, known)


def edges(one: Built, those: Sequence[Built]) -> list[Built]:
    """The problems at edges that take the very build, and are none of those."""
    had = {other.case.plan.slug() for other in those}
    found = [
        other
        for known in one.case.plan.edges()
        for other in _sized_as(one, known, MOST_STEPS_OF_AN_EDGE, hidden=True)
    ]
    return [other for other in found if other.case.plan.slug() not in had]


def _sized_as(
    one: Built, known: KernelPlan, most: int = MOST_STEPS, *, hidden: bool = False
) -> Iterator[Built]:
    """A problem of the sizes of another that takes the very build; none where flags differ.

    Args:
        one: A problem of the build.
        known: The other.
        most: Steps that it may take.
        hidden: Whether inputs are as extreme as the other's too.
    """
    plan = dataclasses.replace(one.case.plan, tilings=dict(one.tilings))
    flags = {name: value for name, value in plan.problem().items() if isinstance(value, bool)}
    told = known.problem()
    if {name: told[name] for name in flags} == flags:
        numbers: dict[str, Any] = {n: v for n, v in told.items() if type(v) is int}
        if hidden:
            inside = (f.name for f in dataclasses.fields(known) if f.metadata.get("hidden"))
            values = {name: getattr(known, name) for name in inside}
            numbers |= {n: v for n, v in values.items() if isinstance(v, int | float)}
            # What is told is not drawn, such as lengths.
            words = (n for n, v in plan.problem().items() if isinstance(v, str))
            numbers |= {name: None for name in words if told[name] is None}
        small = dataclasses.replace(plan, **numbers)
        if small.is_valid() and (other := as_built(one, small)) is not None:
            yield from _if_small(other, most)


def _alike(one: Built, rng: random.Random, drawn: int) -> Iterator[Built]:
    """Problems that differ in what is given at launch, as far as a kernel takes numbers so."""
    plan = dataclasses.replace(one.case.plan, tilings=dict(one.tilings))
    numbers = {n: v for n, v in plan.tries().items() if not isinstance(v[0], bool | str)}
    alone: dict[str, list[Any]] = {}
    for name, values in plan.tries().items():
        for value in values:
            if (other := as_built(one, with_values(plan, {name: value}))) is not None:
                alone.setdefault(name, []).append(value)
                yield from _if_small(other)
    # Some values take the build by themselves, some only together with others.
    ways: list[Mapping[str, Sequence[Any]]] = [alone, numbers]
    for tries in ways * drawn:
        small = plan.varied(rng, tries, MOST_STEPS)
        if small is None:
            continue
        other = as_built(one, cases.elsewhere(small, rng)) or as_built(one, small)
        if other is not None:
            yield from _if_small(other)
    yield one  # However long it takes, it has all of its stages.


def _if_small(one: Built, most: int = MOST_STEPS) -> Iterator[Built]:
    if one.steps <= most:
        yield one


def with_values(plan: KernelPlan, values: Mapping[str, Any]) -> KernelPlan:
    """The plan with these values of its fields, and with what follows from them."""
    return dataclasses.replace(plan, **plan._fitted(dict(values)))


def as_built(one: Built, plan: KernelPlan) -> Built | None:
    """A problem that takes the very build; None where it takes another."""
    other = built(dataclasses.replace(one.case, plan=plan))
    return other if other is not None and other.builds <= one.builds else None
