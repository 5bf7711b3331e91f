"""Refuses a campaign whose files contradict each other, though each alone follows its schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mla_var3 import devices, evidence, knowledge
from mla_var3.campaign import stepzero
from mla_var3.campaign.memory import FOLDER, Entry
from mla_var3.campaign.workspace import PLANS, SETTINGS, Workspace
from mla_var3.errors import HyperMlaError, InputError
from mla_var3.evidence import Passed, Record


def require(found: Workspace) -> None:
    """Refuse settings and a memory that do not belong to the campaign, its plans and records.

    Raises:
        InputError: The first fault; names the file and the field.
    """
    start = found.settings.start
    try:
        found.subject.require_takes(start)
    except HyperMlaError as error:
        raise InputError(f"{SETTINGS}:", f"problem and start: {error}") from error
    entries = found.memory.entries(masked=True)
    made = [entry.version for entry in entries if entry.origin == "campaign"]
    if made and not any(entry.origin == "start" for entry in entries):
        raise InputError(f"{FOLDER}/{start}.json:", f"origin: {made[0]} is there without a start")
    require_entries(found, entries)


def require_entries(found: Workspace, entries: Iterable[Entry]) -> None:
    """Refuse entries that do not belong to the campaign, its plans and records.

    Raises:
        InputError: The first fault; names the file and the field.
    """
    known = found.subject.known()
    addresses = {evidence.address(record) for record in known}
    for entry in entries:
        if entry.origin != "history":
            for fault in _faults(found, entry, known, addresses):
                raise InputError(f"{FOLDER}/{entry.version}.json:", fault)


def _faults(
    found: Workspace, entry: Entry, known: Iterable[Record], addresses: set[str]
) -> Iterator[str]:
    if entry.origin == "start":
        yield from _of_start(found, entry)
    own = found.subject.name(entry.version)
    if entry.subject != own:
        yield f"subject: it is {entry.subject!r}, and {entry.version} of this campaign is {own!r}"
    if entry.pattern and entry.pattern not in knowledge.load_all().by_id:
        yield f"pattern: there is no page {entry.pattern}"
    if entry.origin == "campaign":
        yield from _of_path(found, entry)
    yield from _of_check(found, entry)
    for name in entry.evidence:
        if name not in addresses:
            yield f"evidence: there is no record {name}"
    yield from _of_times(found, entry, known)
    yield from _of_difference(found, entry)
    yield from _of_texts(entry)
    if entry.origin == "campaign":
        yield from _of_plan(found, entry)


def _of_start(found: Workspace, entry: Entry) -> Iterator[str]:
    """What is wrong with an entry as the start of the campaign."""
    if entry.version != found.settings.start:
        yield f"origin: the campaign starts with {found.settings.start}"
    if entry.masked:
        yield "masked: the baseline cannot be masked"


def _of_path(found: Workspace, entry: Entry) -> Iterator[str]:
    """Whether its plan is the one of its version, and there."""
    plan = f"{PLANS}/{found.plan_path(entry.version).name}"
    if entry.plan != plan:
        yield f"plan: it is {entry.plan!r}, and that of {entry.version} is {plan}"
    if not (found.root / plan).is_file():
        yield f"plan: {plan} is not there"


def _of_texts(entry: Entry) -> Iterator[str]:
    """Figures in its texts that name no source."""
    texts = [(field, getattr(entry, field)) for field in ("hypothesis", "change")]
    texts += [("facts", fact) for fact in entry.facts]
    texts += [("pitfalls", f"{one.pitfall} {one.fix}") for one in entry.pitfalls]
    for field, text in texts:
        if told := stepzero.typed(text):
            yield f"{field}: {told!r} names no source"


def _of_plan(found: Workspace, entry: Entry) -> Iterator[str]:
    """What an entry says otherwise than its plan."""
    plan, name = found.plan(entry.version), entry.plan
    for field in ("parent", "hypothesis", "pattern", "change"):
        said, planned = getattr(entry, field), getattr(plan, field)
        if said != planned:
            yield f"{field}: it is {said!r}, and {planned!r} in {name}"


def _of_check(found: Workspace, entry: Entry) -> Iterator[str]:
    """What is wrong with the check of an entry, where records state that of the version."""
    correct = entry.correctness
    if correct.status == "passed" and (correct.error is None or correct.tolerance is None):
        yield "correctness: it passed, without an error and a tolerance"
    if not found.version(entry.version).is_file():
        return
    checks = [
        getattr(r.outcome, "correctness", None) for r in found.subject.records_of(entry.version)
    ]
    stated = {(c.max_relative_error, c.tolerance) for c in checks if c is not None}
    if correct.status == "passed" and stated and (correct.error, correct.tolerance) not in stated:
        yield (
            f"correctness: no record of {entry.version} states an error of {correct.error} "
            f"within {correct.tolerance}"
        )


def _of_difference(found: Workspace, entry: Entry) -> Iterator[str]:
    """What is wrong with the size of a change, where the files of both versions are there."""
    parent = entry.parent
    if entry.origin != "campaign" or parent is None:
        return
    for name in entry.diff.files:
        if name not in found.subject.sources(entry.version):
            yield f"diff.files: {entry.version} has no file {name}"
    if found.version(parent).is_file() and found.version(entry.version).is_file():
        added, removed = found.difference(parent, entry.version)
        if (entry.diff.added, entry.diff.removed) != (added, removed):
            yield (
                f"diff: it says {entry.diff.added} lines added and {entry.diff.removed} removed, "
                f"and {entry.version} differs from {parent} by {added} and {removed}"
            )


def _of_times(found: Workspace, entry: Entry, known: Iterable[Record]) -> Iterator[str]:
    """What is wrong with the time of an entry: another GPU's, or one that no record states."""
    times = entry.performance
    if times is None:
        return
    if not devices.runs_code_of(times.device, device := found.settings.device):
        yield f"performance.device: {times.device} runs other code than {device}"
    measured = {
        (record.target, round(outcome.total.median_us, 6))
        for record in known
        if record.run == times.run and isinstance(outcome := record.outcome, Passed)
        and outcome.total is not None
    }  # fmt: skip
    for name in ("median_us", "parent_us"):
        value = getattr(times, name)
        if value is not None and (times.device, round(value, 6)) not in measured:
            yield f"performance.{name}: no record of run {times.run} states {value:,} us"
