"""Chooses the problems of ``check`` where compiling is slow: few builds, many sizes for each.

A build serves every extent that its kernels take at launch. So few problems that together have most
of a version's switches are compiled, and all further ones differ only in what is given at launch.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mla_var3 import languages
from mla_var3.app import plan_values
from mla_var3.errors import HyperMlaError
from mla_var3.runtime import cases
from mla_var3.runtime.cases import Case
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.unreached import Reaching

#: Problems by chance of which the builds are chosen, with the steps that one may take, and sizes
#: drawn for each of these.
DRAWN, STEPS_DRAWN, SIZES_DRAWN = 40, 90, 60
#: Builds that may come on top of those asked for, where an axis had a single value till then.
MORE_BUILDS = 2
#: Problems of each build, how many it has however long they take, and those of one on top.
PROBLEMS, LEAST_PROBLEMS, FEWER_PROBLEMS = 16, 10, 8
#: Problems beside one that is there for a value of what plans decide, and sizes drawn for these.
BESIDE, SIZES_BESIDE = 2, 8
#: What the blocks of one problem may do, and those of all of a build, in steps of tiles; and how
#: many steps it takes to start a block, or a problem.
MOST_STEPS, ALL_STEPS, STEPS_OF_A_BLOCK, STEPS_OF_A_PROBLEM = 120, 500, 3, 10
#: Which of them is one of the workload's own problems.
PLANNED = 2
#: What it is worth, in pairs of values, that a number is one, two or more for the first time, and
#: that three traits of problems meet.
WORTH_OF_A_TURN, WORTH_OF_A_MEETING = 30, 5
#: Blocks along an axis that are many, also where clusters take several, and that are several; and
#: what a size exceeds that is more than one tile.
MANY_BLOCKS, FEW_TILES, LONG = 5, 2, 64
#: Multiprocessors that are few, and how many new magnitudes they are worth.
FEW_SMS, WORTH_OF_FEW = 8, 4
#: Multiprocessors that share few items, and how many items: kernels merge many parts in other ways
#: than few, and those of an item behind another elsewhere.
WIDE_SMS, WIDE_ITEMS = 28, (1, 2)
#: A setting with more values than this is a size, not a switch.
MOST_VALUES = 4

Feature = tuple[str, str, str]
#: Begins the key of a feature that says that a kernel has a switch at all.
HAS = "has "


@dataclass(frozen=True)
class _Built:
    """A case, with what the compiler sees of it as constants."""

    case: Case
    switches: frozenset[Feature]
    builds: frozenset[str]
    steps: int
    outputs: int
    tilings: Mapping[str, Any]
    grids: frozenset[tuple[str, int]]
    blocks: int

    @property
    def few(self) -> bool:
        """Whether multiprocessors are so few that blocks which stay take several rounds."""
        return self.case.plan.target.sm_count <= FEW_SMS


def chosen(plan: KernelPlan, builds: int, named: Iterable[Reaching] = ()) -> list[Case]:
    """The problems, those of a build one after the other.

    Args:
        plan: A plan of the version.
        builds: How many ways of compiling it are checked.
        named: Further problems; the first build that can runs each.
    """
    left = [one for case in _candidates(plan) if (one := _built(case)) is not None]
    switches = _told(left)
    picked: list[list[_Built]] = []
    while left and len(picked) < builds + MORE_BUILDS:
        able = left if len(picked) < builds else [x for x in left if _brings(x, left, picked)]
        if not able:
            break
        best = _best(able, picked, switches)
        most = PROBLEMS if len(picked) < builds else FEWER_PROBLEMS
        those = [*itertools.islice(_sized(best, len(picked)), most)]
        those += _edges(best, those)
        if not any(one.case.plan.target.sm_count == WIDE_SMS for own in picked for one in own):
            those += _wide(best, those)
        picked.append(those)
        left = [one for one in left if not one.builds <= best.builds]
    for asked in named:
        if asked.as_planned:
            _add_whole(as_named(plan, asked), picked, 0)
        else:
            _add(_on_device(plan, asked), asked.fields, picked)
    had = [one.case.plan for those in picked for one in those]
    for small in plan_values.unseen(plan, had, MOST_STEPS):
        _add_whole(small, picked)
    # The first goes through most steps; others are launched twice.
    return [
        dataclasses.replace(
            one.case,
            plan=one.case.plan if place else _deep(one.case.plan),
            build=number,
            runs=2 if place in again else 1,
        )
        for number, those in enumerate(picked)
        for again in [_launched_twice(those)]
        for place, one in enumerate(those)
    ]


def _launched_twice(those: Sequence[_Built]) -> set[int]:
    """Which problems of a build are launched twice: not the first; the next, or the shortest.

    And the one of an item that many multiprocessors share: what they count for each other has to
    be as before. A problem that a version names can be longer than all others together.
    """
    rest = range(1, len(those))
    usual = [place for place in rest if those[place].steps <= MOST_STEPS]
    usual = usual or sorted(rest, key=lambda place: those[place].steps)
    wide = [x for x in rest if those[x].case.plan.target.sm_count == WIDE_SMS]
    return {*usual[:1], *wide[:1]}


def as_named(plan: KernelPlan, one: Reaching) -> KernelPlan:
    """A problem that a version names, as its plan makes it."""
    return _with(_on_device(plan, one), one.fields)


def _on_device(plan: KernelPlan, one: Reaching) -> KernelPlan:
    return plan if one.sms is None else cases.on_device_of(plan, one.sms)


def _deep(plan: KernelPlan) -> KernelPlan:
    """A problem of many steps with what takes many to show, such as a maximum that rises."""
    fields = {f.name: f.metadata["deep"] for f in dataclasses.fields(plan) if "deep" in f.metadata}
    return dataclasses.replace(plan, **fields)


def _add(plan: KernelPlan, values: Mapping[str, Any], picked: list[list[_Built]]) -> None:
    """Add a problem with these values to the first build that takes it, else a build for it."""
    for those in picked:
        alike = dataclasses.replace(
            those[0].case.plan, tilings=dict(those[0].tilings), machine=plan.machine
        )
        if (other := _of(those[0], _with(alike, values))) is not None:
            those.append(other)
            return
    _add_whole(_with(plan, values), picked, 0)


def _add_whole(small: KernelPlan, picked: list[list[_Built]], beside: int = BESIDE) -> None:
    """Add a problem as its plan makes it; a build for it alone has others beside it."""
    if (alone := _built(Case(small, "default", "forward"))) is None:
        return
    if (those := next((x for x in picked if alone.builds <= x[0].builds), None)) is not None:
        those.append(alone)
        return
    # The first has most steps.
    others = _sized(alone, len(picked), SIZES_BESIDE) if beside else iter(())
    picked.append([alone, *itertools.islice(others, 1, 1 + beside)])


def _told(found: Sequence[_Built]) -> frozenset[Feature]:
    """What switches are set to, of those with few values."""
    values = Counter(feature[:2] for feature in {f for one in found for f in one.switches})
    return frozenset(f for one in found for f in one.switches if values[f[:2]] <= MOST_VALUES)


def _best(
    left: Sequence[_Built], picked: Sequence[Sequence[_Built]], switches: frozenset[Feature]
) -> _Built:
    """That with most that is new: flags, pairs that meet, then magnitudes; the smaller."""
    had = [one for those in picked for one in those]
    flags, turns = {f for one in had for f in _flags(one)}, {t for one in had for t in _turns(one)}
    met = {pair for one in had for pair in _pairs(one, switches)}
    few = any(one.few for one in had)

    def worth(one: _Built) -> tuple[int, int, int, int]:
        new = len(_turns(one) - turns) + WORTH_OF_FEW * (one.few > few)
        return len(_flags(one) - flags), len(_pairs(one, switches) - met), new, -one.steps

    return max(left, key=worth)


def _pairs(one: _Built, switches: frozenset[Feature]) -> set[frozenset[Any]]:
    """Two of what a build decides: a mask that no merge meets is half a check of both.

    Flags and stages, the switches of few values, and axes of a grid that have several blocks.
    """
    several = {axis for axis in one.grids if axis[1] == FEW_TILES}
    features = _flags(one) | (one.switches & switches) | several
    return {frozenset(pair) for pair in itertools.combinations(features, 2)}


def _brings(one: _Built, left: Sequence[_Built], picked: Sequence[Sequence[_Built]]) -> bool:
    """Whether a further build has another value of an axis that had a single one so far.

    Or a second block of an axis of a grid that had a single one, or a kernel of another class.
    """

    def values(those: Iterable[_Built]) -> dict[str, set[Any]]:
        rows = [each.case.plan.problem() for each in those]
        return {name: {row[name] for row in rows} for name in rows[0]}

    all_picked = [each for those in picked for each in those]
    had, known = values(all_picked), values([*all_picked, *left])
    own = one.case.plan.problem()
    blocks = {more for each in all_picked for more in each.grids}
    classes = {feature for each in all_picked for feature in each.switches}
    if any(key.startswith(HAS) for _, key, _ in one.switches - classes):
        return True
    return any(number == 2 for _, number in one.grids - blocks) or any(
        len(had[name]) == 1 < len(known[name]) and own[name] not in had[name] for name in known
    )


def _candidates(plan: KernelPlan) -> Iterator[Case]:
    those = cases.cases(plan)
    yield from those
    yield from itertools.islice(cases.drawn(plan, len(those), STEPS_DRAWN), DRAWN)


def _built(case: Case) -> _Built | None:
    """What a case compiles to; None where its version refuses it, or nobody would run it so."""
    try:
        if not plan_values.is_usual(case.plan):
            return None
        obj = case.plan.plan(*case.plan.prepare_inputs("meta"))
        stages = obj.stages()
        found = {languages.find(k.language).build(k) for _, k in stages}
    except HyperMlaError:
        return None
    grids = {name: languages.find(kernel.language).grid(kernel) for name, kernel in stages}
    steps = case.plan.steps() + _steps_of_blocks([*grids.values()])
    tilings = {kernel.name: kernel.tiling for _, kernel in stages}
    outputs = sum(tensor.numel() for tensor in stages[-1][1].output_tensors.values())
    return _Built(
        case, frozenset(_switches(obj)), frozenset(found), steps, outputs, tilings,
        frozenset(_more_blocks(grids)), math.prod(next(iter(grids.values()), (0,))),
    )  # fmt: skip


def _more_blocks(grids: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, int]]:
    """Of each axis of each launch that it has a second block, a third, and so on up to many."""
    for name, grid in grids.items():
        for axis, blocks in enumerate(grid):
            yield from ((f"{name} {axis}", n) for n in range(2, min(blocks, MANY_BLOCKS) + 1))


def _steps_of_blocks(grids: Sequence[Sequence[int]]) -> int:
    """Of the first launch in full; blocks of the others mostly merge, or end at once."""
    blocks = [math.prod(grid) for grid in grids]
    return STEPS_OF_A_BLOCK * blocks[0] + sum(blocks[1:])


def _switches(obj: RuntimeObject) -> Iterator[Feature]:
    for name, kernel in obj.stages():
        yield name, "", ""  # that it is there
        for key, value in languages.find(kernel.language).switches(kernel).items():
            yield name, key, repr(value)
            yield name, HAS + key, ""  # which a kernel of another class may lack


def _flags(one: _Built) -> set[tuple[str, Any]]:
    """Its stages, and what the problem says in a word or with yes or no, such as its mask."""
    said = {(n, v) for n, v in one.case.plan.problem().items() if isinstance(v, bool | str)}
    return said | {("stage", name) for name, key, _ in one.switches if not key}


def _sized(one: _Built, seed: int, drawn: int = SIZES_DRAWN) -> Iterator[_Built]:
    """Problems that take the very build, each unlike those before it."""
    pairs, turns, left = cases.Pairs(), set[tuple[str, int]](), ALL_STEPS
    pool, met = [*_alike(one, random.Random(cases.SEED + seed), drawn)], set[frozenset[str]]()
    planned, devices = [*_planned(one)], set[int]()

    def news(other: _Built) -> int:
        new = pairs.new(other.case.plan) + WORTH_OF_A_TURN * len(_turns(other) - turns)
        return new + WORTH_OF_A_MEETING * len(_meetings(other) - met)

    def worth(other: _Built) -> float:
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
        turns |= _turns(best)
        met |= _meetings(best)
        devices.add(best.case.plan.target.sm_count)
        left -= best.steps
        yield best


def _turns(one: _Built) -> set[tuple[str, int]]:
    """How large each number of the problem is, which powers of two it exceeds, and its blocks."""
    numbers = [(n, v - 1) for n, v in one.case.plan.problem().items() if type(v) is int]
    sizes = {(name, -less.bit_length()) for name, less in numbers}
    beyond = {(name, n + 1) for name, less in numbers for n in range(less.bit_length())}
    return sizes | beyond | one.grids


def _meetings(one: _Built) -> set[frozenset[str]]:
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


def _depth(one: _Built) -> float:
    """Work per output, which grows with what a block goes through."""
    cost = one.case.plan._algorithmic_flops_bytes()
    return cost.flops / one.outputs


def _wide(one: _Built, those: Sequence[_Built]) -> list[_Built]:
    """Problems that take the build and of which many multiprocessors share one item, and two."""
    plan = dataclasses.replace(one.case.plan, tilings=dict(one.tilings))
    wide = [x for items in WIDE_ITEMS if (x := plan.shared_by(WIDE_SMS, items)) and x.is_valid()]
    found = [_of(one, cases.on_device_of(x, WIDE_SMS)) for x in wide]
    blocks = max((each.blocks for each in those), default=0)
    # Where one item has no more blocks than others do, parts do not follow multiprocessors.
    if not found or found[0] is None or not blocks < found[0].blocks <= 2 * WIDE_SMS:
        return []
    return [x for x in found if x is not None and x.blocks <= 2 * WIDE_SMS]


def _planned(one: _Built) -> Iterator[_Built]:
    """The workload's own problems that take the very build, which were thought of for a reason."""
    plan = one.case.plan
    for known in [*plan.check_plans(), *plan.edges()]:
        yield from _sized_as(one, known)


def _edges(one: _Built, those: Sequence[_Built]) -> list[_Built]:
    """The problems at edges that take the very build, and are none of those."""
    had = {other.case.plan.slug() for other in those}
    found = [other for known in one.case.plan.edges() for other in _sized_as(one, known)]
    return [other for other in found if other.case.plan.slug() not in had]


def _sized_as(one: _Built, known: KernelPlan) -> Iterator[_Built]:
    """A problem of the sizes of another that takes the very build; none where flags differ."""
    plan = dataclasses.replace(one.case.plan, tilings=dict(one.tilings))
    flags = {name: value for name, value in plan.problem().items() if isinstance(value, bool)}
    told = known.problem()
    if {name: told[name] for name in flags} == flags:
        numbers: dict[str, Any] = {n: v for n, v in told.items() if type(v) is int}
        small = dataclasses.replace(plan, **numbers)
        if small.is_valid() and (other := _of(one, small)) is not None:
            yield from _if_small(other)


def _alike(one: _Built, rng: random.Random, drawn: int) -> Iterator[_Built]:
    """Problems that differ in what is given at launch, as far as a kernel takes numbers so."""
    plan = dataclasses.replace(one.case.plan, tilings=dict(one.tilings))
    numbers = {n: v for n, v in plan.tries().items() if not isinstance(v[0], bool | str)}
    alone: dict[str, list[Any]] = {}
    for name, values in plan.tries().items():
        for value in values:
            if (other := _of(one, _with(plan, {name: value}))) is not None:
                alone.setdefault(name, []).append(value)
                yield from _if_small(other)
    # Some values take the build by themselves, some only together with others.
    ways: list[Mapping[str, Sequence[Any]]] = [alone, numbers]
    for tries in ways * drawn:
        small = plan.varied(rng, tries, MOST_STEPS)
        if small is None:
            continue
        other = _of(one, cases.elsewhere(small, rng)) or _of(one, small)
        if other is not None:
            yield from _if_small(other)
    yield one  # However long it takes, it has all of its stages.


def _if_small(one: _Built) -> Iterator[_Built]:
    if one.steps <= MOST_STEPS:
        yield one


def _with(plan: KernelPlan, values: Mapping[str, Any]) -> KernelPlan:
    return dataclasses.replace(plan, **plan._fitted(dict(values)))


def _of(one: _Built, plan: KernelPlan) -> _Built | None:
    """A problem that takes the very build; None where it takes another."""
    other = _built(dataclasses.replace(one.case, plan=plan))
    return other if other is not None and other.builds <= one.builds else None
