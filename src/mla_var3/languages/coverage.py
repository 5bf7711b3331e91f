"""Chooses compile cases of a version that show every value of every compile-time switch.

A default alone does not: a mistake where CTAs split the keys leaves the code of those that do not
as it was. The table of fingerprints holds these cases.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from mla_var3 import languages
from mla_var3.errors import HyperMlaError
from mla_var3.evidence.builds import Case
from mla_var3.languages.fingerprints import bound, case_of
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version
from mla_var3.runtime.tiling import Tiling

#: A setting with more values than this among all candidates is a size, not a switch: any will do.
MOST_VALUES = 4

Feature = tuple[str, str, str]


def cases(
    version: Version,
    device: str,
    problems: Sequence[dict[str, Any]],
    known: Sequence[Case] = (),
) -> list[Case]:
    """Few cases that together have every switch that the version's check problems have.

    Args:
        version: The version.
        device: Key of the device.
        problems: Problems that are taken first, such as those that were measured.
        known: Cases that there are already; what they have is not looked for.
    """
    found: dict[str, tuple[Case, set[Feature]]] = {}
    for case, obj in _candidates(version, device, problems):
        found.setdefault(case.key, (case, set(_features(obj))))
    seen = set().union(*(own for _, own in found.values()))
    values = Counter((stage, name) for stage, name, _ in seen)
    wanted = {feature for feature in seen if values[feature[:2]] <= MOST_VALUES}
    for case in known:
        wanted -= set(_features(bound(version, case)))
    chosen: list[Case] = []
    while wanted:
        case, own = max(found.values(), key=lambda one: len(one[1] & wanted))
        chosen.append(case)
        wanted -= own
    return chosen


def _candidates(
    version: Version, device: str, problems: Sequence[dict[str, Any]]
) -> Iterator[tuple[Case, RuntimeObject]]:
    """Problems under their default tilings; then with one switch of a tiling turned."""
    plans = [version.plan_of(problem) for problem in problems]
    plans += version.plan_class()().check_plans()
    for plan in plans:
        case = Case(device=device, problem=plan.problem(), tilings=())
        try:
            obj = bound(version, case)
        except HyperMlaError:
            continue
        yield case_of(plan, device, obj), obj
        yield from _turned(version, plan, device, obj)


def _turned(
    version: Version, plan: KernelPlan, device: str, obj: RuntimeObject
) -> Iterator[tuple[Case, RuntimeObject]]:
    base = case_of(plan, device, obj)
    for place, (_, kernel) in enumerate(obj.stages()):
        for tiling in _neighbors(kernel.tiling):
            tilings = [*base.tilings]
            tilings[place] = tiling.values()
            case = base.model_copy(update={"tilings": tuple(tilings)})
            try:
                yield case, bound(version, case)
            except HyperMlaError:
                continue


def _neighbors(tiling: Tiling) -> Iterator[Tiling]:
    """Tilings with one flag turned, or one number raised from 0 or 1, where that is a switch."""
    for field in dataclasses.fields(tiling):
        value = getattr(tiling, field.name)
        if isinstance(value, bool):
            yield dataclasses.replace(tiling, **{field.name: not value})
        elif isinstance(value, int | float) and value in (0, 1, 2):
            for other in {0, 1, 2} - {value}:
                yield dataclasses.replace(tiling, **{field.name: type(value)(other)})


def _features(obj: RuntimeObject) -> Iterator[Feature]:
    """Settings of each stage that the compiler sees as constants."""
    for place, (_, kernel) in enumerate(obj.stages()):
        for name, value in languages.find(kernel.language).switches(kernel).items():
            yield str(place), name, repr(value)
