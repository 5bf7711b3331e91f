"""Command ``compare``: prints which of two versions is faster and by what, from their records."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from mla_var3 import evidence
from mla_var3.app import winner
from mla_var3.errors import RecordError, UsageError
from mla_var3.evidence import Correctness, Passed, Record
from mla_var3.evidence.compare import said, same_work, versus
from mla_var3.profiling import counted
from mla_var3.runtime import costs, registry
from mla_var3.runtime.registry import Version
from mla_var3.static.occupancy import of_facts
from mla_var3.workloads import workloads

Figure = str | float
#: Ends the labels of times that were measured: those compare within one run only.
MEASURED = "median us"


def pair(design: str, first: str, second: str, language: str | None) -> tuple[Version, Version]:
    """The two versions.

    ``v1@<language>`` takes one of them in another language, ``<design>/v1`` of another design.

    Raises:
        UnknownNameError: There is no such design or version.
        UsageError: Both are the same.
    """
    found = []
    for name in (first, second):
        version, _, other = name.partition("@")
        elsewhere, _, version = version.rpartition("/")
        asked = other or (None if elsewhere else language)
        where = elsewhere or (design.partition("@")[0] if asked else design)
        found.append(registry.find(where, version, asked))
    if found[0] == found[1]:
        raise UsageError(f"{found[0].key} is given twice; name two versions")
    return found[0], found[1]


def pairs(one: Version, other: Version) -> list[tuple[Record, Record]]:
    """The records of both versions, for each target, mode and problem that both have one of.

    Raises:
        RecordError: There is none; says what to run.
    """
    left, right = _by_key(one), _by_key(other)
    common = [_together(left[key], right[key]) for key in left if key in right]
    if not common:
        lacking = [v for v, found in ((one, left), (other, right)) if not found] or [one, other]
        commands = " and ".join(f"nox -s profile -- {v.key}" for v in lacking)
        raise RecordError(f"{one.key} and {other.key} share no record to compare; run {commands}")
    return common


def summary(one: Version, other: Version) -> Iterator[str | Table]:
    """The winner in a sentence, then the figures that make it one.

    Raises:
        RecordError: See ``pairs``.
    """
    common = pairs(one, other)
    problem = same_work(workloads()[one.layer].compared)
    timed = versus(_records(one), _records(other), problem)
    found = winner.duel(_names(one, other), timed, common)
    yield found.verdict
    yield from winner.duel_tables(found)


def comparison_tables(one: Version, other: Version) -> list[Table]:
    """A table for each target, mode and problem that both versions have a record of.

    Raises:
        RecordError: See ``pairs``.
    """
    return [_table(one, other, left, right) for left, right in pairs(one, other)]


def _records(version: Version) -> list[Record]:
    found = evidence.find(language=version.language, design=version.design, version=version.version)
    return list(found)


def _by_key(version: Version) -> dict[tuple[str, str, str], list[Record]]:
    """Records by target, mode and problem, in the order of their times."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in _records(version):
        found.setdefault((record.target, record.mode, record.slug), []).append(record)
    return found


def _together(left: list[Record], right: list[Record]) -> tuple[Record, Record]:
    """The two records of the newest run that measured both versions, else the newest of each."""
    runs = {record.run: record for record in left}
    shared = [(runs[other.run], other) for other in right if other.run in runs]
    return shared[-1] if shared else (left[-1], right[-1])


def _table(one: Version, other: Version, left: Record, right: Record) -> Table:
    stale = [v.key for v, r in ((one, left), (other, right)) if evidence.is_stale(r)]
    note = f" (stale: {', '.join(stale)})" if stale else ""
    title = f"{one.design}: {left.target} · {left.mode} · {left.slug}{note}"
    names = _names(one, other)
    table = Table(title=title, title_justify="left")
    for column in ("", *names, f"{names[1]} against {names[0]}"):
        table.add_column(column, justify="right" if column else "left")
    one_run = left.run == right.run
    a, b = figures(left), figures(right)
    for label in dict.fromkeys([*a, *b]):
        before, after = a.get(label, ""), b.get(label, "")
        table.add_row(label, _text(before), _text(after), against(label, before, after, one_run))
    return table


def _names(one: Version, other: Version) -> tuple[str, str]:
    same = one.design == other.design, one.language == other.language
    return _name(one, *same), _name(other, *same)


def _name(version: Version, same_design: bool, same_language: bool) -> str:
    """Name of a version in a comparison: as short as tells it from the other one."""
    name = version.version if same_design else f"{version.design} {version.version}"
    return name if same_language else f"{name}@{version.language}"


def figures(record: Record) -> dict[str, Figure]:
    """Figures of a record by label, in display order."""
    outcome = record.outcome
    if isinstance(outcome, evidence.Failed):
        return {"status": f"failed: {outcome.error}"}
    if isinstance(outcome, evidence.Skipped):
        return {"status": f"skipped: {outcome.reason}"}
    found: dict[str, Figure] = {}
    if (work := costs.cost(record)) is not None:
        found |= {"GFLOP (model)": work.flops / 1e9, "MB (model)": work.bytes / 1e6}
    if outcome.correctness is not None:
        found |= _checked(outcome.correctness)
    if outcome.total is not None:
        found[MEASURED] = outcome.total.median_us
    if (least := costs.bound(record)) is not None:
        found[f"bound us, {least.device}"] = least.time_us
    return found | _of_stages(outcome)


def _checked(correctness: Correctness) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    if (worst := correctness.max_relative_error) is not None:
        found["relative error"] = worst
    for label, field in (("loaded", "bytes_loaded"), ("stored", "bytes_stored")):
        counted = [getattr(case, field) for case in correctness.cases]
        if all(value is not None for value in counted):
            found[f"kB {label} (on the CPU)"] = sum(counted) / 1e3
    return found


def _of_stages(outcome: Passed) -> dict[str, Figure]:
    """Times, compiler facts and counters; with several stages each label names its own."""
    found: dict[str, Figure] = {}
    several = len(outcome.stages) > 1
    for stage in outcome.stages:
        name = f"{stage.name}: " if several else ""
        if several and stage.duration is not None:
            found[f"{name}{MEASURED}"] = stage.duration.median_us
        if (facts := stage.static) is not None:
            found[f"{name}registers"] = facts.registers
            found[f"{name}stack bytes"] = facts.stack_bytes
            found[f"{name}shared bytes"] = facts.shared_bytes
            found[f"{name}MMA"] = facts.mma_path
            if (held := of_facts(facts)) is not None:
                found[f"{name}blocks per SM"] = held.blocks_per_sm
        shown = counted.formatted(stage.counters)
        found |= {f"{name}{label}": text for label, text in shown.items()}
    return found


def _text(value: Figure) -> str:
    return value if isinstance(value, str) else f"{value:.4g}" if value % 1 else f"{value:.0f}"


def against(label: str, before: Figure, after: Figure, one_run: bool) -> str:
    """The second figure against the first, the way people read it."""
    if isinstance(before, str) or isinstance(after, str) or not before or not after:
        return ""
    if label.endswith(MEASURED):
        return said(before, after) if one_run else "other run"
    return f"{after / before:.2f}x"
