"""Advice where no pattern page is certain: names a power limit, a near bound, or a measurement.

A page whose trigger rests on a problem and a time alone is a guess. In its place stands the
measurement whose values its triggers, and those of other pages, still ask for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from mla_var3 import languages
from mla_var3.errors import DeviceFigureError
from mla_var3.evidence import Passed, Record
from mla_var3.knowledge import history, losses, metrics, triggers
from mla_var3.knowledge.joining import joined
from mla_var3.knowledge.matching import WORTH, match, most
from mla_var3.knowledge.pages import Catalogue, Document
from mla_var3.knowledge.schema import Condition, Trigger
from mla_var3.knowledge.triggers import Values
from mla_var3.roofline import device_of
from mla_var3.roofline.energy import POWER_CAP

#: How a value is measured, by where a metric comes from; the cheapest first.
MEASURED_BY = {
    "static": "`--prof_type=static` at the problem that was timed, which needs no GPU",
    "execution": "`--prof_type=disabled --check`, which needs no GPU",
    "time": "`--prof_type=event` on a GPU",
    "counter": "`--prof_type=ncu` on a GPU",
}
#: The workload of records of users' files, of which no counters are taken.
ADOPTED = "adopted"
#: Name of a verdict that says what to measure next.
MEASURE = "Measure"
NOTHING = "Nothing found: no trigger fires, and none asks for what was not measured."
#: Most metrics, and pages, that a sentence names.
MOST = 3
#: A clock below this share of the boost clock is a cause of its own.
SLOWED = 0.97


def verdict(record: Record, catalogue: Catalogue) -> list[tuple[str, str]]:
    """What stands in place of pages, a name and a sentence each; power also stands beside pages.

    Args:
        record: The record of a run.
        catalogue: The pages, and the records that complete it.
    """
    if not isinstance(record.outcome, Passed):
        return []
    whole = joined(record, history.of_version(catalogue, record.kernel))
    found = [("Power", said)] if (said := power(whole)) else []
    if match(record, catalogue):
        return found
    if (left := most(whole, None)) < WORTH:
        said = f"Nothing found: the bound is {1 / left:.0%} of the measured time."
        return [*found, ("Advice", said)]
    said = measurement(whole, catalogue)
    return [*found, (MEASURE if said else "Advice", said or NOTHING)]


def power(record: Record) -> str:
    """That the board's power held the clock down; empty where it did not or nobody looked."""
    energy = record.outcome.energy if isinstance(record.outcome, Passed) else None
    device = device_of(record)
    if energy is None or energy.sm_clock_mhz is None or device is None:
        return ""
    try:
        boost = device.figure("boost_clock").normalised
    except DeviceFigureError:
        return ""
    if POWER_CAP not in energy.throttle or energy.sm_clock_mhz >= SLOWED * boost:
        return ""
    return (
        f"Back to back the power limit holds the SM clock at {energy.sm_clock_mhz:.0f} of "
        f"{boost:.0f} MHz. A kernel that moves fewer bytes or multiplies fewer values runs faster; "
        "one that only overlaps them better does not."
    )


def measurement(record: Record, catalogue: Catalogue) -> str:
    """Which measurement would decide between the pages that are still open; empty where none."""
    asked: dict[str, Counter[str]] = defaultdict(Counter)
    pages: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for page, missing in _open(Values(record), catalogue):
        asked[_origin(missing[0])].update(missing)
        pages[_origin(missing[0])][page.pattern.id] = missing
    for origin, how in MEASURED_BY.items():
        if origin in asked and _can_measure(record, origin) and not _measured(record, origin):
            common = [name for name, _ in asked[origin].most_common(MOST)]
            named = ", ".join(f"`{name}`" for name in common)
            # What many pages ask for comes first, and with it the pages that ask.
            ordered = sorted(pages[origin].items(), key=lambda item: common[0] not in item[1])
            more = len(ordered) - MOST
            told = ", ".join(page for page, _ in ordered[:MOST])
            told += f" and {more} more" if more > 0 else ""
            return f"The facts decide nothing. Measure {named} with {how}: it decides {told}."
    return ""


def _origin(name: str) -> str:
    """Which measurement states a metric: a share of the bound takes a time, too."""
    return "time" if name == "bound_fraction" else metrics.metric(name).origin


def _can_measure(record: Record, origin: str) -> bool:
    """Whether a measurement is to be had: torch and libraries bring kernels compiled elsewhere."""
    if origin in ("time", "counter"):
        return origin == "time" or record.kernel.layer != ADOPTED
    compiles = languages.find(record.kernel.language).archs or "triton" in record.toolchain
    return bool(compiles)


def _measured(record: Record, origin: str) -> bool:
    """Whether a record states what a measurement tells, so that another would tell no more."""
    outcome = record.outcome
    assert isinstance(outcome, Passed)
    if origin == "time":
        return outcome.total is not None
    if origin == "execution":
        return losses.counted(record) is not None
    if origin == "static":
        return all(stage.static is not None for stage in outcome.stages)
    return any(stage.counters for stage in outcome.stages)


def _open(values: Values, catalogue: Catalogue) -> Iterator[tuple[Document, tuple[str, ...]]]:
    """Pages with a trigger that holds as far as it is known, and the metrics that it lacks."""
    for page in catalogue.patterns:
        if not triggers.applies(page.pattern, values.record):
            continue
        for trigger in page.pattern.triggers:
            missing = _missing(trigger, values)
            if missing and len({_origin(name) for name in missing}) == 1:
                yield page, missing
                break


def _missing(trigger: Trigger, values: Values) -> tuple[str, ...]:
    """Metrics of a trigger that a measurement would state; none where a stated value rules it out.

    Only what the machine states can be measured: a problem that lacks an axis never has it.
    """
    conditions = (trigger, *trigger.with_)
    unknown = [c.metric for c in conditions if not values.of(c.metric)]
    if any(_origin(name) not in MEASURED_BY for name in unknown):
        return ()
    known = [c for c in conditions if values.of(c.metric)]
    if not all(_holds_somewhere(condition, values) for condition in known):
        return ()
    return tuple(dict.fromkeys(unknown))


def _holds_somewhere(condition: Condition, values: Values) -> bool:
    return any(condition.holds(reading.value) for reading in values.of(condition.metric))


def verdicts(made: Iterable[Record], catalogue: Catalogue) -> list[tuple[str, str]]:
    """The verdicts of several records, each sentence once."""
    found = (said for record in made for said in verdict(record, catalogue))
    return list(dict.fromkeys(found))
