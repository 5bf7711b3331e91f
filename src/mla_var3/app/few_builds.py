"""Chooses the problems of ``check`` where compiling is slow: few builds, many sizes for each.

A build serves every extent that its kernels take at launch. So few problems that together have most
of a version's switches are compiled, and all further ones differ only in what is given at launch.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mla_var3.app import build_sizes, plan_values
from mla_var3.app.build_sizes import FEW_TILES, MOST_STEPS, PROBLEMS, WIDE_SMS
from mla_var3.app.builds import HAS, Built, Feature, built, flags_of, turns_of
from mla_var3.runtime import cases
from mla_var3.runtime.cases import Case
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.tiling import Tiling
from mla_var3.runtime.unreached import Reaching

#: Problems by chance of which the builds are chosen, and the steps that one may take.
DRAWN, STEPS_DRAWN = 40, 90
#: Builds that may come on top of those asked for, where an axis had a single value till then, and
#: problems of one.
MORE_BUILDS, FEWER_PROBLEMS = 2, 8
#: Steps of a problem that is there for a value of what plans decide, where one so short shows it.
FEW_STEPS = 60
#: A count that plans leave to themselves, where one build is given it: the first that it takes. One
#: block takes all items in turn, whatever their steps; clusters take two.
FEW_BLOCKS = (1, 2)
#: Steps of a problem that is short.
SHORT = 5
#: Axes of an input that is rows alone.
ROWS_AXES = 2
#: Problems beside one that is there for a value of what plans decide, and sizes drawn for these.
BESIDE, SIZES_BESIDE = 2, 8
#: How many new magnitudes it is worth that multiprocessors are few.
WORTH_OF_FEW = 4
#: A setting with more values than this is a size, not a switch.
MOST_VALUES = 4

#: Tilings of a stage of a problem with a value of a number that none of those known is.
Lacking = Callable[[Built, str, "dataclasses.Field[Any]", set[Any]], Sequence[Tiling]]


def chosen(plan: KernelPlan, builds: int, named: Iterable[Reaching] = ()) -> list[Case]:
    """The problems, those of a build one after the other.

    Args:
        plan: A plan of the version.
        builds: How many ways of compiling it are checked.
        named: Further problems; the first build that can runs each.
    """
    left = [one for case in _candidates(plan) if (one := built(case)) is not None]
    switches = _told(left)
    picked: list[list[Built]] = []
    turned, rows = set[frozenset[Any]](), list[Built]()
    while left and len(picked) < builds + MORE_BUILDS:
        if len(picked) < builds:
            best: Built | None = _best(left, picked, switches)
        else:
            best = _further(plan, left, picked, switches)
        if best is None:
            break
        left = [one for one in left if not one.builds <= best.builds]
        best = _at_ends(best, picked)
        most = PROBLEMS if len(picked) < builds else FEWER_PROBLEMS
        those = [*itertools.islice(build_sizes.sized(best, len(picked)), most)]
        those += build_sizes.edges(best, those)
        if not any(one.case.plan.target.sm_count == WIDE_SMS for own in picked for one in own):
            those += build_sizes.wide(best, those)
        if not rows:
            rows = build_sizes.crowded(best, those)
            those += rows
        if _kind(best) not in turned and (several := build_sizes.in_turn(best)):
            turned.add(_kind(best))
            those += several
        picked.append(those)
        left = [one for one in left if not one.builds <= best.builds]
    # Builds for what plans decide take what is named, too, and show nothing that this will show.
    wanted = list(named)
    _add_unseen(plan, picked, [as_named(plan, one) for one in wanted])
    for asked in wanted:
        if asked.as_planned:
            _add_planned(plan, asked, picked)
        else:
            _add(_on_device(plan, asked), asked, picked)
    _add_unseen(plan, picked)  # In a build that was there, it is not as its plan makes it.
    for those in picked:
        those += build_sizes.other_sides(those)
    for lacking in (_above, _odd):
        _add_lacking(picked, lacking)
    # The first goes through most steps; others are launched twice.
    return [
        dataclasses.replace(
            one.case,
            plan=one.case.plan if place else _deep(one.case.plan, number),
            build=number,
            runs=2 if place in again else 1,
            beside=not number and place == _beside(those, again),
            nan=place in spoilt,
        )
        for number, those in enumerate(picked)
        for again in [_launched_twice(those)]
        for spoilt in [_spoilt(those, again)]
        for place, one in enumerate(those)
    ]


def _at_ends(one: Built, picked: Sequence[Sequence[Built]], *, alone: bool = False) -> Built:
    """The same with an end of each number of its tilings that is not whole, such as a lag.

    One that no build has had; the first build keeps its numbers. And where all had a power of two
    for a count, such as places of a ring, with less, if it can be: a remainder taken by a mask
    would be right for all others; not of a problem that is alone, which may be short. And where a
    plan left a count to itself in all builds, such as blocks that stay, with few: each has several
    items then.
    """
    plan = one.case.plan
    for stage, tiling in one.tilings.items():
        had = [those[0].tilings[stage] for those in picked if stage in those[0].tilings]
        for field in dataclasses.fields(tiling) if had else ():
            known = {getattr(each, field.name) for each in had}
            own = one.tilings[stage]
            if type(field.default) is float and getattr(own, field.name) in known:
                others = cases.ends(own, field.name, plan)
                new = [each for each in others if getattr(each, field.name) not in known]
            elif known == {None} and getattr(own, field.name) is None:
                new = [dataclasses.replace(own, **{field.name: count}) for count in FEW_BLOCKS]
            else:
                new = [] if alone else _odd(one, stage, field, known)
            one = _with(one, stage, new) or one
    return one


def _with(one: Built, stage: str, tilings: Iterable[Tiling]) -> Built | None:
    """The same with the first of tilings of a stage that its version takes."""
    made = (_tiled(one, {**one.tilings, stage: each}) for each in tilings)
    return next((other for other in made if other is not None), None)


def _tiled(one: Built, tilings: Mapping[str, Any]) -> Built | None:
    plan = dataclasses.replace(one.case.plan, tilings=dict(tilings))
    return built(dataclasses.replace(one.case, plan=plan))


def _odd(one: Built, stage: str, count: dataclasses.Field[Any], known: set[Any]) -> list[Tiling]:
    """The tiling with less of a count, where all that were known are powers of two."""
    known_counts = [x for x in known if type(x) is int]
    if any(x & (x - 1) for x in known_counts):
        return []
    return cases.odd(one.tilings[stage], count.name)


def _above(one: Built, stage: str, lag: dataclasses.Field[Any], known: set[Any]) -> list[Tiling]:
    """The tiling with the most of a number that is not whole, where none was above its default.

    Such as a lag: what is right without it, and at the default, may overflow above.
    """
    plan = one.case.plan
    if type(lag.default) is not float:
        return []
    if (most := max(known)) > getattr(plan.default_tiling(stage), lag.name):
        return []
    ends = cases.ends(one.tilings[stage], lag.name, plan)
    return [each for each in ends if getattr(each, lag.name) > most]


def _kind(one: Built) -> frozenset[Any]:
    """Of which classes its kernels are, by what they can be set to, and which counts are odd."""
    classes = {feature for feature in one.switches if feature[1].startswith(HAS)}
    odd = {
        (stage, field.name)
        for stage, tiling in one.tilings.items()
        for field in dataclasses.fields(tiling)
        if type(count := getattr(tiling, field.name)) is int and count & (count - 1)
    }
    return frozenset(classes | odd)


def _plans(picked: Sequence[Sequence[Built]]) -> list[KernelPlan]:
    return [one.case.plan for those in picked for one in those]


def _cost(picked: Sequence[Sequence[Built]], plan: KernelPlan) -> tuple[int, int]:
    """How many stages of a problem no problem so far compiles, and its steps."""
    one = built(cases.as_planned(plan))
    if one is None:
        return 0, plan.steps()
    known = {build for those in picked for each in those for build in each.builds}
    return len(one.builds - known), one.steps


def _launched_twice(those: Sequence[Built]) -> set[int]:
    """Which problems of a build are launched twice: not the first; the next, and the short ones.

    Of those many blocks have no work, and end, or begin the next launch, ahead of others.
    And those of items that many multiprocessors share: what they count for each other has to be as
    before. A problem that a version names can be longer than all others together, and is
    launched so where that is asked for.
    """
    rest = range(1, len(those))
    usual = [place for place in rest if those[place].steps <= MOST_STEPS]
    usual = usual or sorted(rest, key=lambda place: those[place].steps)
    short = [place for place in rest if those[place].case.plan.steps() <= SHORT]
    asked = [place for place, one in enumerate(those) if one.twice]
    return {*usual[:1], *_wide(those), *short, *asked}


def _beside(those: Sequence[Built], again: set[int]) -> int | None:
    """Of those launched twice the one that has another plan beside it, and rows that lie apart.

    The first of those with several sequences, pages or heads, which may lie apart, too.
    """

    def alone(place: int) -> int:
        inputs = those[place].case.plan.prepare_inputs("meta")
        return sum(len(x) == 1 for x in inputs if x.ndim > ROWS_AXES)

    return min(again, key=lambda place: (alone(place), place), default=None)


def _spoilt(those: Sequence[Built], again: set[int]) -> set[int]:
    """Which problems of a build are run on a NaN too: the first launched twice, and a wide one.

    None that is long.
    """
    found = (*sorted(again)[:1], *_wide(those)[:1])
    return {place for place in found if those[place].case.plan.steps() <= MOST_STEPS}


def _wide(those: Sequence[Built]) -> list[int]:
    """Problems of a build that many multiprocessors share; not the first."""
    return [
        place for place, one in enumerate(those)
        if place and one.case.plan.target.sm_count == WIDE_SMS
    ]  # fmt: skip


def as_named(plan: KernelPlan, one: Reaching) -> KernelPlan:
    """A problem that a version names, as its plan makes it."""
    return build_sizes.with_values(_on_device(plan, one), one.fields)


def _on_device(plan: KernelPlan, one: Reaching) -> KernelPlan:
    return plan if one.sms is None else cases.on_device_of(plan, one.sms)


def _deep(plan: KernelPlan, number: int) -> KernelPlan:
    """A problem of many steps with what takes many to show, such as a maximum that rises.

    Args:
        plan: The problem.
        number: Of its build; builds take what there is by turns.
    """
    deep = {f.name: f.metadata["deep"] for f in dataclasses.fields(plan) if "deep" in f.metadata}
    values = {name: those[number % len(those)] for name, those in deep.items()}
    return dataclasses.replace(plan, **values)


def _add(plan: KernelPlan, asked: Reaching, picked: list[list[Built]]) -> None:
    """Add a problem that is named to the first build that takes it, else a build for it."""
    for those in picked if not asked.tiling else ():
        alike = dataclasses.replace(
            those[0].case.plan, tilings=dict(those[0].tilings), machine=plan.machine
        )
        small = build_sizes.with_values(alike, asked.fields)
        if (other := build_sizes.as_built(those[0], small)) is not None:
            those.append(dataclasses.replace(other, twice=asked.twice))
            return
    whole = built(cases.as_planned(build_sizes.with_values(plan, asked.fields)))
    if whole is not None and asked.tiling:
        whole = _tiled(whole, {n: _set_to(each, asked.tiling) for n, each in whole.tilings.items()})
    elif whole is not None:
        whole = _at_ends(whole, picked, alone=True)
    if whole is not None:
        _add_whole(whole.case.plan, picked, 0, twice=asked.twice)


def _set_to(tiling: Tiling, numbers: Mapping[str, int]) -> Tiling:
    """A tiling with those of the numbers that it has."""
    own = {field.name for field in dataclasses.fields(tiling)} & numbers.keys()
    return dataclasses.replace(tiling, **{name: numbers[name] for name in own})


def _add_unseen(
    plan: KernelPlan, picked: list[list[Built]], more: Sequence[KernelPlan] = ()
) -> None:
    """Add what shows other values of what plans decide than those picked, and more, do."""
    cost = functools.partial(_cost, picked)
    had = [*_plans(picked), *more]
    for small in plan_values.unseen(plan, had, MOST_STEPS, cost, FEW_STEPS):
        _add_whole(small, picked)


def _add_planned(plan: KernelPlan, asked: Reaching, picked: list[list[Built]]) -> None:
    """Add a problem as its plan makes it to the first build that takes it in a type of its own."""
    whole = as_named(plan, asked)
    types = dict.fromkeys(those[0].case.plan.dtype for those in picked)
    for small in (dataclasses.replace(whole, dtype=dtype) for dtype in types):
        one = built(cases.as_planned(small)) if small.is_valid() else None
        one = one and dataclasses.replace(one, twice=asked.twice)
        if one and (those := next((x for x in picked if one.builds <= x[0].builds), None)):
            those.append(one)
            return
    _add_whole(whole, picked, 0, twice=asked.twice)


def _add_whole(
    small: KernelPlan, picked: list[list[Built]], beside: int = BESIDE, *, twice: bool = False
) -> None:
    """Add a problem as its plan makes it; a build for it alone has others beside it."""
    if (made := built(cases.as_planned(small))) is None:
        return
    alone = dataclasses.replace(made, twice=twice)
    if (those := next((x for x in picked if alone.builds <= x[0].builds), None)) is not None:
        those.append(alone)
        return
    # The first has most steps.
    others = build_sizes.sized(alone, len(picked), SIZES_BESIDE) if beside else iter(())
    picked.append([alone, *itertools.islice(others, 1, 1 + beside)])


def _add_lacking(picked: list[list[Built]], lacking: Lacking) -> None:
    """Add a problem with a value of each number of a tiling that no build has.

    Where builds are too few for all, or the one that would have taken it refused it.
    """
    for one in [those[0] for those in picked]:
        for stage, tiling in one.tilings.items():
            for field in dataclasses.fields(tiling):
                had = (x[0].tilings[stage] for x in picked if stage in x[0].tilings)
                known = {getattr(each, field.name) for each in had}
                if other := _with(one, stage, lacking(one, stage, field, known)):
                    # A ring has to begin anew, and more than once.
                    deepest = build_sizes.sized(other, len(picked), SIZES_BESIDE)
                    picked.append(build_sizes.in_turn(other) or [*itertools.islice(deepest, 1)])


def _told(found: Sequence[Built]) -> frozenset[Feature]:
    """What switches are set to, of those with few values."""
    values = Counter(feature[:2] for feature in {f for one in found for f in one.switches})
    return frozenset(f for one in found for f in one.switches if values[f[:2]] <= MOST_VALUES)


def _best(
    left: Sequence[Built],
    picked: Sequence[Sequence[Built]],
    switches: frozenset[Feature],
    shown: Callable[[KernelPlan], int] = lambda _plan: 0,
) -> Built:
    """That with most that is new: flags, pairs that meet, then magnitudes; the smaller."""
    had = [one for those in picked for one in those]
    flags, turns = (
        {f for one in had for f in flags_of(one)},
        {t for one in had for t in turns_of(one)},
    )
    met = {pair for one in had for pair in _pairs(one, switches)}
    few = any(one.few for one in had)

    def worth(one: Built) -> tuple[int, int, int, int, int]:
        new = len(turns_of(one) - turns) + WORTH_OF_FEW * (one.few > few)
        pairs = len(_pairs(one, switches) - met)
        return shown(one.case.plan), len(flags_of(one) - flags), pairs, new, -one.steps

    return max(left, key=worth)


def _pairs(one: Built, switches: frozenset[Feature]) -> set[frozenset[Any]]:
    """Two of what a build decides: a mask that no merge meets is half a check of both.

    Flags and stages, the switches of few values, and axes of a grid that have several blocks.
    """
    several = {axis for axis in one.grids if axis[1] == FEW_TILES}
    features = flags_of(one) | (one.switches & switches) | several
    return {frozenset(pair) for pair in itertools.combinations(features, 2)}


def _further(
    plan: KernelPlan,
    left: Sequence[Built],
    picked: Sequence[Sequence[Built]],
    switches: frozenset[Feature],
) -> Built | None:
    """One more that brings something; the one that shows most of what plans decide otherwise.

    What none shows takes a build for a few problems.
    """
    shown, more = plan_values.shown(plan, _plans(picked), MOST_STEPS)
    made = (built(cases.as_planned(one)) for one in more[:DRAWN])
    able = [*left, *(one for one in made if one is not None)]
    able = [one for one in able if _brings(one, left, picked)]
    return _best(able, picked, switches, shown) if able else None


def _brings(one: Built, left: Sequence[Built], picked: Sequence[Sequence[Built]]) -> bool:
    """Whether a further build has another value of an axis that had a single one so far.

    Or a second block of an axis of a grid that had a single one, or a kernel of another class.
    """

    def values(those: Iterable[Built]) -> dict[str, set[Any]]:
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
    # Sizes are moved once they are chosen.
    yield from itertools.islice(cases.drawn(plan, len(those), STEPS_DRAWN, near=False), DRAWN)
