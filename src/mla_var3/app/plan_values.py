"""Finds what plans decide on the host and no problem of ``check`` had otherwise.

A plan chooses parts, splits, blocks and launches from the sizes of its problem and the device.
Where all problems of a check got one and the same, what kernels do otherwise was never run.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mla_var3 import languages
from mla_var3.errors import HyperMlaError
from mla_var3.runtime import cases
from mla_var3.runtime.plan import KernelPlan

#: Problems by chance that show which values plans choose.
DRAWN = 300
#: A setting of a kernel with more values than this is a size, not a switch.
MOST_VALUES = 4
#: A count that kernels may treat like no larger one, and how it is said that one is larger.
TWO = 2
OVER = f" over {TWO}"
#: A problem that shows a value has at most so many steps, where one has: the more the better.
STEPS = 16

#: Stage and name of something that plans decide.
Key = tuple[str, str]
#: What a plan decided, as text.
Values = Mapping[Key, str]


def of(plan: KernelPlan) -> Values | None:
    """What a plan decides: its launches, their tilings and settings; None where it refuses."""
    try:
        stages = plan.plan(*plan.prepare_inputs("meta")).stages()
    except HyperMlaError:
        return None
    found: dict[Key, str] = {("", "launches"): ", ".join(name for name, _ in stages)}
    for name, kernel in stages:
        language = languages.find(kernel.language)
        if language.cpu_builds is not None:  # Others name their settings by place only.
            found |= {(name, k): repr(v) for k, v in language.switches(kernel).items()}
        for field in dataclasses.fields(kernel.tiling):
            value = getattr(kernel.tiling, field.name)
            found[name, field.name] = repr(value)
            if type(value) is int:  # Two are often a case of their own.
                found[name, f"{field.name}{OVER}"] = repr(value > TWO)
    return found


def is_usual(plan: KernelPlan) -> bool:
    """Whether what is cut in one piece by default is cut so that tuning would time it.

    How many CTAs share an item may be bound to how many items there are, which few tilings say.
    """
    return all(
        getattr(default, field.name) != 1
        or getattr(tiling, field.name) in {getattr(one, field.name) for one in usual}
        for stage, tiling in plan.tilings.items()
        for default in [plan.default_tiling(stage)]
        for usual in [[default, *plan._autotune_configs().get(stage, ())]]
        for field in dataclasses.fields(default)
    )


def gaps(plan: KernelPlan, checked: Sequence[KernelPlan], most: int) -> list[str]:
    """What had one value over all checked problems and has others by chance, one phrase each.

    Args:
        plan: A plan of the version.
        checked: The problems.
        most: Steps of tiles that a problem may take.
    """
    had = _sets(found for one in checked if (found := of(one)) is not None)
    known = _sets(found for _, found in _pool(plan, most))
    return sorted(
        f"plan {name}{f' ({stage})' if stage else ''} was always {next(iter(had[stage, name]))}"
        for stage, name in _open(had, known)
    )


def _steps(plan: KernelPlan) -> tuple[int, int]:
    return 0, plan.steps()


def unseen(
    plan: KernelPlan,
    checked: Sequence[KernelPlan],
    most: int,
    cost: Callable[[KernelPlan], tuple[int, int]] = _steps,
    few: int = STEPS,
) -> Iterator[KernelPlan]:
    """Few problems with other values of what has one value over all checked problems.

    Args:
        plan: A plan of the version.
        checked: The problems.
        most: Steps of tiles that a problem may take.
        cost: How many stages a problem compiles that are not compiled yet, and its steps.
        few: Steps that one has at most, where one shows as much: up to these, the more the better.
    """
    had = _sets(found for one in checked if (found := of(one)) is not None)
    pool = _pool(plan, most)
    known = _sets(found for _, found in pool)
    while wanted := _open(had, known):
        news = [_news(found, had, wanted) for _, found in pool]
        able = [one for one, new in zip(pool, news, strict=True) if new == max(news)]

        def worth(one: tuple[KernelPlan, Values]) -> tuple[int, bool, int]:
            stages, steps = cost(one[0])
            return -stages, steps <= few, steps if steps <= few else -steps

        best, found = max(able, key=worth)
        for key, value in found.items():
            had.setdefault(key, set()).add(value)
        yield best


def shown(
    plan: KernelPlan, checked: Sequence[KernelPlan], most: int
) -> tuple[Callable[[KernelPlan], int], list[KernelPlan]]:
    """How much a further problem shows of what has one value over all checked problems.

    Args:
        plan: A plan of the version.
        checked: The problems.
        most: Steps of tiles that a problem may take.

    Returns:
        How much one shows, and those by chance that show most; none where nothing is left.
    """
    had = _sets(found for one in checked if (found := of(one)) is not None)
    pool = _pool(plan, most)
    wanted = _open(had, _sets(found for _, found in pool))
    news = [_news(found, had, wanted) for _, found in pool]
    best = [one for (one, _), new in zip(pool, news, strict=True) if 0 < new == max(news)]
    return lambda one: _news(of(one) or {}, had, wanted), best


def _news(found: Values, had: Mapping[Key, set[str]], wanted: Sequence[Key]) -> int:
    return sum(key in found and found[key] not in had[key] for key in wanted)


def _open(had: Mapping[Key, set[str]], known: Mapping[Key, set[str]]) -> list[Key]:
    """What has one value of several; a count that is always large enough lacks none."""
    return [
        key
        for key, own in had.items()
        if len(own) == 1
        and known.get(key, own) - own
        and not (key[1].endswith(OVER) and own == {repr(True)})
    ]


def _sets(those: Iterable[Values]) -> dict[Key, set[str]]:
    found: dict[Key, set[str]] = {}
    for one in those:
        for key, value in one.items():
            found.setdefault(key, set()).add(value)
    return found


#: Problems by chance, by plan: choosing problems asks for them first, and judging these again.
_POOLS: dict[tuple[type[KernelPlan], str, int], list[tuple[KernelPlan, Values]]] = {}


def _pool(plan: KernelPlan, most: int) -> list[tuple[KernelPlan, Values]]:
    """Problems by chance, always the same, with what their plans decide of few values."""
    key = type(plan), plan.slug(), most
    if key not in _POOLS:
        _POOLS[key] = list(_drawn(plan, most))
    return _POOLS[key]


def _drawn(plan: KernelPlan, most: int) -> Iterator[tuple[KernelPlan, Values]]:
    rng, tries = random.Random(cases.SEED), plan.tries()
    small = (plan.varied(rng, tries, most) for _ in range(DRAWN))
    placed = [cases.elsewhere(one, rng) for one in small if one is not None]
    placed += [tuned for n, one in enumerate(placed) if (tuned := cases.tuned(one, n)) != one]
    found = [(one, values) for one in placed if (values := of(one)) is not None]
    tilings = {
        (stage, field.name) for stage, kind in plan.tiling_types.items()
        for field in dataclasses.fields(kind)
    }  # fmt: skip
    sizes = {
        key for key, values in _sets(values for _, values in found).items()
        if (key not in tilings and len(values) > MOST_VALUES) or key[1].startswith("dtype of")
    }  # fmt: skip
    for one, values in found:
        yield one, {key: value for key, value in values.items() if key not in sizes}
