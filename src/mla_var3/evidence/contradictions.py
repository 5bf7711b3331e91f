"""Consistency checks of records: find fields of one, or of several, that exclude each other.

None of this proves that a run took place; see ``evidence.integrity`` for what a hash cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from mla_var3.evidence.model import Duration, Passed, Record
from mla_var3.evidence.sources import KERNELS

#: Modes that run the version on a GPU at its own problem.
ON_A_GPU = ("event", "annotation", "ncu", "nsys")
#: How far below one of several stages the whole may lie, by its median as by its least time: each
#: is timed on its own, with other clocks. Of 881 committed pairs one median lies at 0.96, one least
#: time at 0.93, and none of both kinds below 0.98.
ROOM = 0.95
#: Modes that read counters of the GPU.
COUNTED = ("annotation", "ncu", "nsys")
#: By how much power times time may miss the joules: of 329 committed records 0.0005 at most.
ROUNDED = 0.01
#: How many times longer a launch may take back to back than with a flush of the L2 between, or the
#: other way round: of 329 committed records 0.80 to 1.19.
ALIKE = 2.0


def faults(record: Record) -> Iterator[str]:
    """What in a record contradicts the rest of it, one sentence each."""
    yield from _sources(record)
    if not isinstance(outcome := record.outcome, Passed):
        return
    yield from _check(record, outcome)
    yield from _samples(outcome)
    yield from _total(outcome)
    yield from _stages(record, outcome)
    yield from _energy(outcome)


def _sources(record: Record) -> Iterator[str]:
    for name in record.kernel.sources:
        parts = PurePosixPath(name).parts
        if parts[:1] != (KERNELS,) or ".." in parts:
            yield f"source {name} does not lie below {KERNELS}/"


def _check(record: Record, outcome: Passed) -> Iterator[str]:
    checked = outcome.correctness
    if checked is None:
        if record.mode in ON_A_GPU:
            yield f"mode {record.mode} times nothing unchecked, and the record has no check"
        return
    if not record.is_static and any(case.problem != record.problem for case in checked.cases):
        yield "its check is of another problem"


def _samples(outcome: Passed) -> Iterator[str]:
    if outcome.protocol is None:
        return
    runs = outcome.protocol.bench_runs
    for name, duration in _durations(outcome):
        if duration.samples != runs:
            yield f"{name} has {duration.samples} samples of {runs} timed runs"
        if duration.samples == 1 and duration.min_us != duration.max_us:
            yield f"{name} has one sample, from {duration.min_us:g} to {duration.max_us:g} us"
    if (outcome.protocol.rounds or 1) > runs:
        yield f"its {runs} timed runs cannot be in {outcome.protocol.rounds} rounds"


def _stages(record: Record, outcome: Passed) -> Iterator[str]:
    """A stage twice, or counters where the mode counts nothing and none where it does."""
    names = [stage.name for stage in outcome.stages]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"stage {name} stands {names.count(name)} times"
    counted = any(stage.counters for stage in outcome.stages)
    if counted and record.mode not in COUNTED:
        yield f"mode {record.mode} counts nothing, and the record has counters"
    if not counted and record.mode == "ncu":
        yield "mode ncu counts, and the record has no counters"


def _energy(outcome: Passed) -> Iterator[str]:
    """Joules that are not power times time, or launches of another length than those timed."""
    if (energy := outcome.energy) is None:
        return
    drawn = energy.watts * energy.launch_us * 1e-6
    if abs(energy.joules / drawn - 1) > ROUNDED:
        yield (
            f"{energy.watts:g} W over {energy.launch_us:g} us are {drawn:.4g} J, and it states "
            f"{energy.joules:.4g}"
        )
    timed = outcome.total
    if timed is not None and not 1 / ALIKE < energy.launch_us / timed.median_us < ALIKE:
        yield (
            f"a launch took {energy.launch_us:g} us back to back, and {timed.median_us:g} us when "
            "it was timed"
        )


def _durations(outcome: Passed) -> Iterator[tuple[str, Duration]]:
    if outcome.total is not None:
        yield "the whole", outcome.total
    for stage in outcome.stages:
        if stage.duration is not None:
            yield f"stage {stage.name}", stage.duration


def _total(outcome: Passed) -> Iterator[str]:
    """A whole that takes less time than what it consists of."""
    total = outcome.total
    if total is None:
        return
    for stage in outcome.stages:
        if (part := stage.duration) is None:
            continue
        if len(outcome.stages) == 1 and total.median_us < part.median_us:
            yield (
                f"the whole took {total.median_us:g} us, and its only stage {stage.name} "
                f"{part.median_us:g} us"
            )
        elif total.median_us < ROOM * part.median_us and total.min_us < ROOM * part.min_us:
            yield (
                f"the whole took {total.median_us:g} us, and its stage {stage.name} alone "
                f"{part.median_us:g} us"
            )
