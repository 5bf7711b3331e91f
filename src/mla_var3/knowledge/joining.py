"""Joins a record with others of the same sources, so that advice has times and compile facts.

A timed run carries no facts of the compiler, and a compile carries no times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from mla_var3 import roofline
from mla_var3.archs import base_arch
from mla_var3.errors import DeviceFigureError
from mla_var3.evidence import Correctness, Passed, Record, Scalar, Stage, StaticFacts


def distance(one: Mapping[str, Scalar], other: Mapping[str, Scalar]) -> float:
    """How far two problems lie apart: the logarithms of their sizes, 1 for each other difference.

    Axes that only one of them has do not count.
    """
    return math.fsum(_apart(one[axis], other[axis]) for axis in one.keys() & other.keys())


def _apart(a: Scalar, b: Scalar) -> float:
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (a, b))
    if not numbers:
        return float(a != b)
    return abs(math.log((1 + abs(float(a or 0))) / (1 + abs(float(b or 0)))))


def joined(record: Record, others: Iterable[Record]) -> Record:
    """A record with what others of the same sources state and it does not.

    Static facts come from a compile of the same stage with the same tiling for the same arch, that
    of the nearest problem first. A grid that the run did not state comes from a compile of the same
    problem for as many multiprocessors, counters from the same problem on the same device. A check
    on a CPU stands in where the run itself counted nothing.

    Args:
        record: What to complete; a run that did not pass is returned as it is.
        others: Records to draw on; those of other versions or other sources are passed over.
    """
    if not isinstance(record.outcome, Passed):
        return record
    near = sorted(
        (r for r in others if r.kernel == record.kernel and isinstance(r.outcome, Passed)),
        key=lambda r: distance(r.problem, record.problem),
    )
    stages = [_completed(stage, record, near) for stage in record.outcome.stages]
    checked = record.outcome.correctness
    if not _counts(checked):
        checked = _check(near) or checked
    outcome = record.outcome.model_copy(update={"stages": stages, "correctness": checked})
    return record.model_copy(update={"outcome": outcome})


def _completed(stage: Stage, record: Record, near: Sequence[Record]) -> Stage:
    return stage.model_copy(
        update={
            "grid": stage.grid or _grid(stage, record, near),
            "static": stage.static or _facts(stage, record, near),
            "counters": stage.counters or _counters(stage, record, near),
        }
    )


def _facts(stage: Stage, record: Record, near: Sequence[Record]) -> StaticFacts | None:
    arch = base_arch(record.arch or "")
    for other in near:
        if not arch or base_arch(other.arch or "") != arch:
            continue
        for twin in _twins(stage, other):
            if twin.static is not None and twin.static.ok:
                return twin.static
    return None


def _grid(stage: Stage, record: Record, near: Sequence[Record]) -> list[int]:
    places = _multiprocessors(record)
    same = (r for r in near if r.slug == record.slug and _multiprocessors(r) == places)
    return next((twin.grid for r in same for twin in _twins(stage, r) if twin.grid), [])


def _multiprocessors(record: Record) -> int | None:
    device = roofline.device_of(record)
    try:
        return None if device is None else device.sm_count
    except DeviceFigureError:
        return None


def _counters(stage: Stage, record: Record, near: Sequence[Record]) -> dict[str, float]:
    same = (r for r in near if (r.slug, r.target) == (record.slug, record.target))
    found = (twin.counters for other in same for twin in _twins(stage, other) if twin.counters)
    return next(found, {})


def _twins(stage: Stage, other: Record) -> list[Stage]:
    assert isinstance(other.outcome, Passed)
    mine = (stage.name, stage.tiling)
    return [twin for twin in other.outcome.stages if (twin.name, twin.tiling) == mine]


def _counts(checked: Correctness | None) -> bool:
    """Whether a check counted the work of what it ran."""
    return checked is not None and any(case.mma_flops for case in checked.cases)


def _check(near: Sequence[Record]) -> Correctness | None:
    """A check on a CPU, one that counted before others."""
    made = [(r.arch, r.outcome.correctness) for r in near if isinstance(r.outcome, Passed)]
    counted = next((checked for _, checked in made if _counts(checked)), None)
    on_cpu = (checked for arch, checked in made if arch is None and checked is not None)
    return counted or next(on_cpu, None)
