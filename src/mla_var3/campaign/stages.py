"""Stages of a campaign: names the next action, writes a version's plan, runs it through its gates.

What comes next follows from the files alone, so that a campaign that was killed goes on from them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mla_var3 import evidence, knowledge, paths
from mla_var3.campaign import memory, soundness, times, workspace
from mla_var3.campaign.memory import Entry
from mla_var3.campaign.subjects import Examined
from mla_var3.campaign.workspace import Plan, Workspace
from mla_var3.errors import HyperMlaError, InputError, UsageError
from mla_var3.evidence import Passed, Record, StaticFacts
from mla_var3.evidence.compare import word
from mla_var3.knowledge import matching
from mla_var3.paths import write_atomic
from mla_var3.runtime import costs
from mla_var3.tables import microseconds

#: Patterns that are suggested.
SUGGESTED = 5
SESSION = "nox -s campaign --"


@dataclass(frozen=True)
class Action:
    """What to do next.

    Attributes:
        stage: figures, baseline, plan, change, gate or done.
        command: What to run; for stage change, what to run when the file is edited.
        why: Why this.
        file: What to edit, where something is.
        blocked: What a gate refuses, where one does.
    """

    stage: str
    command: str
    why: str
    file: str = ""
    blocked: str = ""

    def data(self) -> dict[str, str]:
        """For programs."""
        return asdict(self)


def current(found: Workspace) -> Entry | None:
    """The version to go on from: the fastest that is right, of equals and of untimed the newest."""
    entries = [e for e in found.memory.entries() if e.correctness.status == "passed"]
    own = [e for e in entries if e.origin != "history"]
    kept = [e for e in own if e.verdict in ("baseline", "faster", "not timed")]
    return kept[-1] if kept else None


def following(found: Workspace) -> Action:
    """What comes next.

    Raises:
        InputError: A file of the workspace is not sound; names it and the field.
    """
    name, settings = found.settings.name, found.settings
    try:
        found.require_sourced()
    except InputError as error:
        return Action("figures", f"{SESSION} next {name}", "a figure has no source, and none is "
                      "typed", str(error).split(":")[0], str(error))  # fmt: skip
    soundness.require(found)
    base = current(found)
    new = found.next_name()
    if base is None:
        start = settings.start
        command, file = f"{SESSION} gate {name} {start}", _file(found, start)
        broken = next((e for e in found.memory.entries() if e.origin == "start"), None)
        if broken is not None:
            why = f"{start} is wrong; mend it, then take it through the gates again"
            return Action("baseline", command, why, file, broken.correctness.message)
        why = f"nothing is known before {start} was checked, compiled and recorded"
        return Action("baseline", command, why, file)
    time = base.performance
    if (
        time is not None
        and time.device == settings.device  # Another GPU of the arch tells which is faster only.
        and settings.target_us is not None
        and time.median_us <= settings.target_us
    ):
        why = f"{base.version} takes {microseconds(time.median_us)} us, and the target is "
        return Action(
            "done", f"{SESSION} memory summary {name}", why + microseconds(settings.target_us)
        )
    return _iteration(found, base, new)


def _iteration(found: Workspace, base: Entry, new: str) -> Action:
    name = found.settings.name
    if not found.plan_path(new).is_file():
        why = (
            f"{base.version} is where to go on from; say what {new} changes, and which record asks"
        )
        return Action("plan", f"{SESSION} plan {name}", why)
    plan_file = paths.relative(found.plan_path(new))
    try:
        plan = required_plan(found, new)
    except HyperMlaError as error:
        return Action("plan", f"{SESSION} next {name}", "the plan does not pass its gate",
                      plan_file, str(error))  # fmt: skip
    found.subject.begin(new, plan.parent)  # Where it was killed between two writes.
    if found.difference(plan.parent, new) == (0, 0):
        why = f"make one change, as {plan_file} says: {plan.change}"
        return Action("change", f"{SESSION} gate {name} {new}", why, _file(found, new))
    why = f"{new} differs from {plan.parent}: check, compile, time and remember it"
    return Action("gate", f"{SESSION} gate {name} {new}", why, _file(found, new))


def _file(found: Workspace, version: str) -> str:
    return paths.relative(found.version(version))


# -- the plan --------------------------------------------------------------------------------------


def suggestions(found: Workspace, base: Entry) -> list[matching.NextStep]:
    """Patterns that the base's records call for, without those that failed here already."""
    records = found.subject.records_of(base.version)
    passed = [record for record in records if isinstance(record.outcome, Passed)]
    known = memory.tried(found.memory.entries())
    steps = matching.steps(passed[-1:], knowledge.load_all(), SUGGESTED + len(known))
    return [step for step in steps if step.id not in known][:SUGGESTED]


def make_plan(found: Workspace, pattern: str, hypothesis: str, change: str, lines: int) -> Path:
    """Write the plan of the next version and its file, a copy of what it starts from.

    Fields that are not given stay TBD, and are to be filled in before the gates.

    Raises:
        UsageError: There is no baseline, or a plan of that version.
        InputError: The idea failed already.
    """
    base = current(found)
    if base is None:
        name, start = found.settings.name, found.settings.start
        raise UsageError(f"there is no baseline; {SESSION} gate {name} {start}")
    new = found.next_name()
    path = found.plan_path(new)
    if path.exists():
        raise UsageError(f"{paths.relative(path)} exists; fill it in")
    _refuse_repetition(found, pattern, path.name)
    records = found.subject.records_of(base.version)
    asked = evidence.address(records[-1]) if records else ""
    values = {
        "parent": base.version, "pattern": pattern, "hypothesis": hypothesis, "change": change,
        "evidence": asked, "lines": str(lines) if lines else "",
    }  # fmt: skip
    told = [str(step) for step in suggestions(found, base)]
    write_atomic(path, workspace.plan_text(new, values, told))
    found.subject.begin(new, base.version)
    found.commit(f"plan: {new} from {base.version}")
    return path


def required_plan(found: Workspace, version: str) -> Plan:
    """The plan of a version, gone through its gates.

    Raises:
        InputError: It is not complete, its evidence does not exist, its parent is none to start
            from, or its idea failed already.
    """
    plan = found.plan(version)
    where = f"{workspace.PLANS}/{found.plan_path(version).name}:"
    entries = {e.version: e for e in found.memory.entries()}
    if plan.parent not in entries or entries[plan.parent].origin == "history":
        raise InputError(where, f"Parent: {plan.parent} is no version that can be seen")
    if entries[plan.parent].correctness.status == "failed":
        raise InputError(where, f"Parent: {plan.parent} is wrong, and nothing starts from it")
    if plan.pattern and plan.pattern not in knowledge.load_all().by_id:
        raise InputError(where, f"Pattern: there is no page {plan.pattern}")
    known = {evidence.address(record) for record in found.subject.known()}
    for name in plan.evidence:
        if name not in known:
            raise InputError(where, f"Evidence: there is no record {name}")
    _refuse_repetition(found, plan.pattern, found.plan_path(version).name)
    return plan


def _refuse_repetition(found: Workspace, pattern: str, plan: str) -> None:
    failed = memory.tried(found.memory.entries()).get(pattern)
    if pattern and failed is not None:
        raise InputError(
            f"{workspace.PLANS}/{plan}:", f"Pattern: {pattern} was tried by {failed.version} and "
            f"was {failed.verdict}; memory mask {failed.version} lets it be tried again"
        )  # fmt: skip


# -- the gates -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gated:
    """What the gates made of a version.

    Attributes:
        entry: What is remembered.
        warnings: What is odd, and refused nothing.
        report: The report that it left.
    """

    entry: Entry
    warnings: tuple[str, ...]
    report: Path


def gate(found: Workspace, version: str, say: Callable[[str], None]) -> Gated:
    """Check a version, compile it, time it with its parent where there is a GPU, remember it.

    A wrong version is remembered too, as wrong. One that was not timed is timed, and no more.

    Raises:
        InputError: The plan, a figure or the memory does not pass.
        UsageError: The version was gated already, or differs in nothing from its parent.
    """
    found.require_sourced()
    soundness.require(found)
    start = version == found.settings.start
    there = found.memory.read(version) if found.memory.path(version).exists() else None
    if there is not None and there.origin == "campaign" and there.verdict == "not timed":
        return _timed_later(found, there, say)
    if there is not None and not (start and (there.origin == "history" or there.failed)):
        raise UsageError(f"{version} went through the gates; memory read shows what came of it")
    if not found.version(version).is_file():
        raise UsageError(f"there is no {version}; {SESSION} next {found.settings.name}")
    plan = None if start else required_plan(found, version)
    if plan is not None and found.difference(plan.parent, version) == (0, 0):
        raise UsageError(f"{version} is {plan.parent} unchanged; edit {_file(found, version)}")
    say(f"checking {version}")
    seen = found.subject.examine(version, say)
    warnings: list[str] = []
    parent = plan.parent if plan is not None else None
    performance = None if seen.is_wrong else times.of(found, version, parent, say, warnings)
    entry = _entry(found, version, plan, seen, performance, there)
    report = _report(found, version, seen)
    found.subject.keep(version)
    if there is not None:
        found.memory.update(version, entry.model_dump(mode="json"))
    else:
        found.memory.create(entry.model_dump(mode="json"))
    found.commit(f"{version}: {entry.verdict}")
    return Gated(entry, (*_warnings(entry, plan), *warnings), report)


def _timed_later(found: Workspace, there: Entry, say: Callable[[str], None]) -> Gated:
    """Time what went through the gates where no GPU was, if it is still as it was."""
    version, parent, name = there.version, there.parent, found.settings.name
    assert parent is not None
    if not found.subject.is_kept(version):
        raise UsageError(
            f"{version} was edited since it went through the gates; {SESSION} plan {name} begins "
            "another version"
        )
    warnings: list[str] = []
    performance = times.of(found, version, parent, say, warnings)
    if performance is None:
        raise UsageError(
            f"{version} went through the gates and was not timed; a GPU that runs the code of "
            f"{found.settings.device} times it, or records of one run in {found.root.name}/results "
            f"that have {parent} and {version}"
        )
    content = {
        "performance": performance.model_dump(mode="json"),
        "verdict": word(performance.parent_us or 0, performance.median_us),
    }
    entry = found.memory.update(version, content)
    found.commit(f"{version}: {entry.verdict}")
    return Gated(entry, tuple(warnings), _report_path(found, version))


def _warnings(entry: Entry, plan: Plan | None) -> list[str]:
    if plan is None or entry.diff.lines <= 2 * plan.lines:
        return []
    return [f"{entry.version} changes {entry.diff.lines} lines, and its plan says {plan.lines}"]


def _entry(
    found: Workspace,
    version: str,
    plan: Plan | None,
    seen: Examined,
    performance: memory.Performance | None,
    there: Entry | None,
) -> Entry:
    correct, source = seen.correctness, found.settings.source
    added, removed = found.difference(plan.parent, version) if plan else (0, 0)
    as_it_is = f"{Path(source).name if source else found.subject.name(version)} as it is"
    content: dict[str, Any] = {
        "version": version,
        "origin": "campaign" if plan else "start",
        "parent": plan.parent if plan else (there and there.parent),
        "subject": found.subject.name(version),
        "hypothesis": plan.hypothesis if plan else "what was adopted is where to start",
        "pattern": plan.pattern if plan else "",
        "plan": f"{workspace.PLANS}/{version}_plan.md" if plan else "",
        "evidence": plan.evidence if plan else (),
        "change": plan.change if plan else as_it_is,
        "diff": {"added": added, "removed": removed},
        "correctness": {
            "status": correct.status, "error": correct.max_relative_error,
            "tolerance": correct.tolerance, "message": correct.message or "",
        },
        "performance": performance and performance.model_dump(mode="json"),
        "facts": facts(seen.records),
        "verdict": _verdict(seen, plan, performance),
        "negative": False,
    }  # fmt: skip
    return memory.entry_of(content, version)


def _verdict(
    seen: Examined, plan: Plan | None, performance: memory.Performance | None
) -> memory.Verdict:
    if seen.is_wrong:
        return "wrong"
    if plan is None:
        return "baseline"
    if performance is None or performance.parent_us is None:
        return "not timed"
    return word(performance.parent_us, performance.median_us)


def facts(records: Sequence[Record]) -> list[str]:
    """What the compilers made of each kernel, a sentence each."""
    return [
        _said(one)
        for record in records
        if isinstance(record.outcome, Passed)
        for one in record.outcome.facts
    ]


def _said(one: StaticFacts) -> str:
    spills = f"{one.spill_instructions} spill instructions" if one.spill_instructions else "none"
    return (
        f"{one.kernel} on {one.arch}: {one.registers} registers, spills {spills}, "
        f"{one.shared_bytes} bytes of shared memory, MMA path {one.mma_path}"
    )


def _report_path(found: Workspace, version: str) -> Path:
    return found.root / workspace.PROFILES / version / "report.md"


def _report(found: Workspace, version: str, seen: Examined) -> Path:
    """The report of a version in the workspace's profiles."""
    from mla_var3.profiling import report

    path = _report_path(found, version)
    with costs.given(seen.work) if seen.work else contextlib.nullcontext():
        passed = [record for record in seen.records if isinstance(record.outcome, Passed)]
        steps = matching.steps(passed, knowledge.load_all(), SUGGESTED) if passed else []
        write_atomic(path, report.render(seen.records, [str(step) for step in steps]))
    return path
