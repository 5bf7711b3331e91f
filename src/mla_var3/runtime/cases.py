"""Chooses the test cases of ``check``: small problems, each with a tiling and a block order.

A kernel must be right under every tiling that is valid and in every order of its blocks. Every pair
of these values occurs; the problems take turns, so that each way of running costs no problem more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mla_var3.errors import PlanError, TilingError
from mla_var3.runtime.execution import Order
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.tiling import Tiling
from mla_var3.workloads.base import MOST_STEPS

#: How tilings differ from the default ones: by the turn of a problem, or, of those at edges, one
#: number by itself, or counts that are no powers of two.
Turn = Literal["default", "halved", "doubled", "tuned"]
Sizes = Turn | Literal["uneven"]

#: Of the chance by which problems are made; of how many the best is taken; and how often one is
#: looked for.
SEED, CANDIDATES, MOST_DRAWS = 20, 12, 20
#: The least count that could be no power of two as well.
LEAST_COUNT = 2
#: Most of a number of a tiling that is not whole.
MOST_ON = 16
#: Blocks of one that is made, of all its launches: about a second on one core.
MOST_BLOCKS = 2000
#: Steps of one at an edge that is run under tilings by default alone.
LONG = 100
#: Steps of one at an edge that is also run under other tilings than it was bound under, and how
#: many of these.
SHORT, RETUNED = 12, 6
#: And of one at an edge, of which there are few.
MOST_BLOCKS_OF_AN_EDGE = 2 * MOST_BLOCKS
#: Multiprocessors of the device that problems are made for: of few, each has several rounds.
SMS = (None, None, 2, 5)
#: And of the device that problems at edges are run on too.
FEW_SMS = 3
ORDERS: tuple[Order, ...] = get_args(Order)
TURNS: tuple[Turn, ...] = get_args(Turn)
SIZES: tuple[Sizes, ...] = (*TURNS, "uneven")


@dataclass(frozen=True)
class Case:
    """One problem, and how it is run.

    Attributes:
        plan: The problem, with its tilings.
        sizes: How its tilings differ from the default ones.
        order: The order in which blocks start, where the language lets it be chosen.
        build: Cases of one number share what is compiled; None where nothing is.
        runs: How often it is launched: a launch may leave something behind for the next one.
        metadata: Whether what a decoding step makes before its launches is checked too.
        beside: Whether another plan of its sizes is run beside it too, and on inputs whose rows lie
            apart.
        nan: Whether it is run on an input that holds NaN, too.
        retuned: Under how many other tilings it is run as it was bound.
    """

    plan: KernelPlan
    sizes: Sizes
    order: Order
    build: int | None = None
    runs: int = 1
    metadata: bool = False
    beside: bool = False
    nan: bool = False
    retuned: int = 0


def cases(plan: KernelPlan, made: int = 0) -> list[Case]:
    """The small problems of a plan, each with a tiling and an order; every pair of these occurs.

    Args:
        plan: The plan.
        made: How many problems are made beside those that the plan has.
    """
    those = [_case(small, i) for i, small in enumerate(plan.check_plans())]
    those[:1] = [dataclasses.replace(case, runs=2, beside=True, nan=True) for case in those[:1]]
    return [
        *those,
        *itertools.islice(drawn(plan, len(those)), made),
        *(_edges(plan) if made else ()),
    ]


def _edges(plan: KernelPlan) -> Iterator[Case]:
    """The problems at edges, under tilings by default, doubled, and that tuning times first.

    And under those of which one number alone is doubled: what ends with tiles of one extent does
    not with those of another. And under counts that are no powers of two, where they can be. And
    bound under halved tilings, then run under those that tuning
    times: what is decided by a tiling has to follow it. And on few multiprocessors, which blocks
    share by what there is.
    """
    for one in plan.edges():
        if not _is_possible(one, MOST_BLOCKS_OF_AN_EDGE):
            continue
        ways: list[tuple[Sizes, KernelPlan]] = [
            ("default", one), ("tuned", tuned(one, 0)), ("doubled", resized(one, "doubled")),
            *(("uneven", other) for other in (*_uneven(one), _odd(one))),
        ]  # fmt: skip
        if one.steps() > LONG:
            del ways[1:]
        had: list[list[Tiling]] = []
        for sizes, other in ways:
            if _is_possible(other, MOST_BLOCKS_OF_AN_EDGE) and (own := _tilings(other)) not in had:
                yield Case(other, sizes, ORDERS[len(had) % len(ORDERS)])
                had.append(own)
        if one.steps() <= SHORT and _is_possible(less := resized(one, "halved")):
            yield Case(less, "halved", "forward", retuned=RETUNED)
        few = on_device_of(one, FEW_SMS)
        if _is_possible(few) and _grids(few) != _grids(one):
            yield as_planned(few)


def _tilings(plan: KernelPlan) -> list[Tiling]:
    return [plan.tiling(stage) for stage in plan.tiling_types]


def _grids(plan: KernelPlan) -> list[Any]:
    return [kernel.grid() for _, kernel in plan.plan(*plan.prepare_inputs("meta")).stages()]


def drawn(
    plan: KernelPlan, first: int = 0, most: int = MOST_STEPS, *, near: bool = True
) -> Iterator[Case]:
    """Problems by chance, always the same, that the plan's own checks let through.

    Each is the one of several that brings most pairs of values of two fields that none before it
    had, so that few problems bring many.

    Args:
        plan: The plan.
        first: Number of the first, by which tilings and orders take turns.
        most: Steps of tiles that one may take.
        near: Whether extents are then moved to ones near those that are tried.
    """
    blocks = MOST_BLOCKS * max(most / MOST_STEPS, 1)
    rng, pairs, known, tries = random.Random(SEED), Pairs(), set[str](), plan.tries()
    for number in itertools.count(first):
        for _ in range(MOST_DRAWS):
            found = [small for _ in range(CANDIDATES) if (small := _drawn(plan, rng, tries, most))]
            best = max(found, key=pairs.new, default=None)
            if best is None or best.slug() in known:
                continue
            known.add(best.slug())
            ways = [best.near(random.Random(best.slug())), best] if near else [best]
            made = (_case(one, number) for one in ways)
            case = next((x for x in made if _is_possible(x.plan, blocks)), None)
            if case is not None:
                pairs.add(best)
                yield case
                break
        else:
            return


def _drawn(
    plan: KernelPlan, rng: random.Random, tries: Mapping[str, Sequence[Any]], most: int
) -> KernelPlan | None:
    small = plan.varied(rng, tries, most)
    return None if small is None else elsewhere(small, rng)


def elsewhere(plan: KernelPlan, rng: random.Random) -> KernelPlan:
    """The plan for a device of as many multiprocessors as chance gives it."""
    sms = rng.choice(SMS)
    return dataclasses.replace(plan, machine=None) if sms is None else on_device_of(plan, sms)


def on_device_of(plan: KernelPlan, sms: int) -> KernelPlan:
    """The plan for a device of so many multiprocessors."""
    return dataclasses.replace(plan, machine=dataclasses.replace(plan.target, sm_count=sms))


class Pairs:
    """Pairs of values of two fields that problems had."""

    def __init__(self) -> None:
        self._seen: set[frozenset[tuple[str, Any]]] = set()
        #: By identity, with the plan that keeps it: whoever chooses asks of each again and again.
        self._known: dict[int, tuple[KernelPlan, set[frozenset[tuple[str, Any]]]]] = {}

    def _of(self, plan: KernelPlan) -> set[frozenset[tuple[str, Any]]]:
        if id(plan) not in self._known:
            values = [*plan.problem().items(), ("sms", plan.target.sm_count)]
            pairs = {frozenset(pair) for pair in itertools.combinations(values, 2)}
            self._known[id(plan)] = plan, pairs
        return self._known[id(plan)][1]

    def new(self, plan: KernelPlan) -> int:
        """How many pairs of a problem none before it had."""
        return len(self._of(plan) - self._seen)

    def add(self, plan: KernelPlan) -> None:
        """Note a problem."""
        self._seen |= self._of(plan)


def _is_possible(plan: KernelPlan, most_blocks: float = math.inf) -> bool:
    """Whether a plan takes these sizes, in so many blocks; what it refuses, nobody can run."""
    try:
        plan.validate()
        stages = plan.plan(*plan.prepare_inputs("meta")).stages()
    except (PlanError, TilingError):
        return False
    return sum(math.prod(kernel.grid()) for _, kernel in stages) <= most_blocks


def _case(plan: KernelPlan, number: int) -> Case:
    order = ORDERS[(number + number // len(TURNS)) % len(ORDERS)]
    sizes = TURNS[number % len(TURNS)]
    other = {"default": lambda: plan, "tuned": lambda: tuned(plan, number // len(TURNS))}.get(
        sizes, lambda: resized(plan, sizes)
    )()
    return Case(other, "default" if other == plan else sizes, order)


def as_checked(plan: KernelPlan) -> KernelPlan:
    """The problem with inputs that take nothing more to run, and show more than usual ones.

    They have no part in choosing problems.
    """
    more = (f for f in dataclasses.fields(plan) if "checked" in f.metadata)
    return dataclasses.replace(plan, **{f.name: f.metadata["checked"] for f in more})


def as_planned(plan: KernelPlan) -> Case:
    """A problem as its plan makes it: tilings of its own are such as tuning times."""
    return Case(plan, "tuned" if plan.tilings else "default", "forward")


def tuned(plan: KernelPlan, number: int) -> KernelPlan:
    """The plan with, of the tilings that tuning would time, those of that number."""
    try:
        configs = plan._autotune_configs()
    except (PlanError, TilingError):
        return plan
    found = {stage: own[number % len(own)] for stage, own in configs.items() if own}
    other = dataclasses.replace(plan, tilings=found)
    return other if found and _is_possible(other) else plan


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
    if type(value) is float and value == 0.0 and sizes == "doubled":
        return next(iter(ends(tiling, name, plan)), tiling)
    if type(value) is not int or (sizes == "halved" and value < 2):
        return tiling
    other = dataclasses.replace(tiling, **{name: value * 2 if sizes == "doubled" else value // 2})
    try:
        other.validate(plan)
    except TilingError:
        return tiling
    return other


def ends(tiling: Tiling, name: str, plan: KernelPlan) -> Iterator[Tiling]:
    """The tiling with the least and the most of a number that is not whole, such as a lag.

    None that it has already; the least is 0, where a plan allows it.
    """
    for values in ((0,), range(MOST_ON, 0, -1)):
        for value in values:
            other = dataclasses.replace(tiling, **{name: float(value)})
            try:
                other.validate(plan)
            except TilingError:
                continue
            if other != tiling:
                yield other
            break


def odd(tiling: Tiling, name: str) -> list[Tiling]:
    """The tiling with a count that is no power of two, one or two less than one that is, or more.

    A plan may refuse all, such as of a number that has to be a multiple of many. Of two there is
    none below.
    """
    value: Any = getattr(tiling, name)
    if type(value) is not int or value < LEAST_COUNT or value & (value - 1):
        return []
    counts = (other for other in (value - 1, value - 2, value + 1) if other & (other - 1))
    return [dataclasses.replace(tiling, **{name: other}) for other in counts]


def _odd(plan: KernelPlan) -> KernelPlan:
    """The plan with each count of its default tilings no power of two, where that is valid."""
    found = {}
    for stage in plan.tiling_types:
        tiling = plan.default_tiling(stage)
        for name in _sizes(tiling):
            for other in odd(tiling, name):
                with contextlib.suppress(TilingError):
                    other.validate(plan)
                    tiling = other
                    break
        found[stage] = tiling
    return dataclasses.replace(plan, tilings=found)


def _sizes(tiling: Tiling) -> list[str]:
    """Its numbers; what is None in its class is not a size, but how it is launched."""
    return [f.name for f in dataclasses.fields(tiling) if type(f.default) is int]


def _uneven(plan: KernelPlan) -> Iterator[KernelPlan]:
    """The plan with one number of each default tiling doubled, one after the other.

    Others are halved, one after the other, as far as that takes: shared memory and registers often
    hold no tile that grows by itself.
    """
    ways = [list(_each_grown(plan.default_tiling(x), plan)) for x in plan.tiling_types]
    for together in itertools.zip_longest(*ways):
        found = {x: t for x, t in zip(plan.tiling_types, together, strict=True) if t is not None}
        yield dataclasses.replace(plan, tilings=found)


def _each_grown(tiling: Tiling, plan: KernelPlan) -> Iterator[Tiling]:
    sizes = _sizes(tiling)
    for name in sizes:
        others = [other for other in sizes if other != name]
        if (grown := _grown(tiling, name, others, plan)) is not None:
            yield grown


def _grown(tiling: Tiling, name: str, others: Sequence[str], plan: KernelPlan) -> Tiling | None:
    """The tiling with twice a number and, of the others, as few halved as that takes."""
    tiling = dataclasses.replace(tiling, **{name: 2 * getattr(tiling, name)})
    for halved in (None, *others):
        if halved is not None:
            tiling = dataclasses.replace(tiling, **{halved: max(getattr(tiling, halved) // 2, 1)})
        with contextlib.suppress(TilingError):
            tiling.validate(plan)
            return tiling
    return None


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
