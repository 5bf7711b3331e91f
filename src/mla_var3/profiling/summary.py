"""Renders a run's records as one screen: correctness, a line per target, limits, what to try.

``report`` renders the same records at full length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from mla_var3 import evidence, roofline
from mla_var3.errors import UnknownNameError
from mla_var3.evidence import Correctness, Passed, Record, Stage
from mla_var3.profiling.report import SIDES, limits, numbered
from mla_var3.profiling.report import facts as facts_list
from mla_var3.runtime import costs, registry
from mla_var3.static.occupancy import of_facts
from mla_var3.tables import axes, cell, microseconds, table

HEADER = ("compiled for", "registers", "spills", "MMA path", "blocks per SM", "median us",
          "bound us", "bound by", "bound of")  # fmt: skip


def render(
    found: Sequence[Record],
    next_steps: Sequence[str] | None = None,
    known: Sequence[tuple[str, str]] = (),
) -> str:
    """The screen as Markdown.

    Args:
        found: Records of one version, any number of targets.
        next_steps: Lines on what to try next; None where nobody looked.
        known: What the records say of the version: a name and a sentence per fact.
    """
    first = found[0]
    held = "" if known else _worst(found)
    facts = [*known, *([("Limited by", held)] if held else [])]
    lines = [f"**{cell(first.kernel.name)}**: {_verdict(found)}."]
    lines += ["", facts_list(facts), ""] if facts else [""]
    meant = "; ".join(_meanings(found))
    at, rows = axes(_common(found)), [_row(record, found) for record in found]
    told = any(any(row[1:]) for row in rows)  # A CPU has nothing to say beside the verdict.
    lines += (
        [f"At {cell(at)}{f' ({meant})' if meant else ''}{':' if told else '.'}", ""] if at else []
    )
    lines += [table(HEADER, rows), ""] if told else []
    if steps := numbered(next_steps):
        gains = " (gain not measured where none stands)" if next_steps else ""
        lines += [f"**Try next**{gains}", "", *steps, ""]
    return "\n".join(lines)


def _common(found: Sequence[Record]) -> dict[str, Any]:
    """The axes that are equal in all records, without those that are open or off."""
    first, *others = (record.problem for record in found)
    return {k: v for k, v in first.items() if all(other.get(k) == v for other in others)}


def _own(record: Record, found: Sequence[Record]) -> str:
    """The axes in which a record differs from the others."""
    common = _common(found)
    return axes({name: v for name, v in record.problem.items() if name not in common})


def _meanings(found: Sequence[Record]) -> list[str]:
    """What the axes mean that each target has its own value of, as ``--help`` says it."""
    first, common = found[0], _common(found)
    own = {name for record in found for name, v in record.problem.items() if name not in common}
    try:
        version = registry.find(
            f"{first.kernel.design}@{first.kernel.language}", first.kernel.version
        )
    except UnknownNameError:  # An adopted file.
        return []
    helps = {f.name: f.metadata.get("help", "") for f in dataclasses.fields(version.plan_class())}
    return [f"{name}: {helps[name].partition(';')[0]}" for name in sorted(own) if helps.get(name)]


def _verdict(found: Sequence[Record]) -> str:
    """Right or wrong, and how far off; a run that did not end well comes first."""
    for record in found:
        if isinstance(record.outcome, evidence.Failed):
            return f"failed on {cell(record.target)}: {cell(record.outcome.error)}"
    first = found[0]
    passed = [record.outcome for record in found if isinstance(record.outcome, Passed)]
    checks = [outcome.correctness for outcome in passed if outcome.correctness is not None]
    wrong = next((check for check in checks if check.status == "failed"), None)
    if wrong is not None:
        return f"**wrong**, {_error(wrong)}" + (f": {cell(wrong.message)}" if wrong.message else "")
    if not checks:
        return "not checked in this run"
    return f"**right**{_elsewhere(first.problem, checks[0])}: {_error(checks[0])}"


def _elsewhere(problem: Mapping[str, Any], check: Correctness) -> str:
    """On which problem the outputs were compared, where that is another one than the run's."""
    checked = check.cases[-1].problem
    other = {k: v for k, v in checked.items() if v is not None and problem.get(k, v) != v}
    if not other:
        return ""
    more = " (the asked size takes too long)" if "CPU" in check.against else ""
    return f" at {cell(axes(other))}{more}"


def _error(check: Correctness) -> str:
    worst = check.max_relative_error
    said = "not finite" if worst is None else f"{worst:.1e}"
    by = "" if "CPU" in check.against else f", by {cell(check.against)}"
    return f"relative error {said} of {check.tolerance:.0e} allowed{by}"


def _row(record: Record, found: Sequence[Record]) -> list[str]:
    """A target in one line: the worst of its stages, and the bound of the whole."""
    where = " ".join([record.target.removeprefix("static/"), _own(record, found)]).strip()
    outcome = record.outcome
    if isinstance(outcome, evidence.Skipped):
        return [cell(where), f"skipped: {cell(outcome.reason)}", *[""] * 7]
    if not isinstance(outcome, Passed):
        return [cell(where), "failed", *[""] * 7]
    facts = outcome.facts
    device, least = roofline.device_of(record), costs.bound(record)
    held = [one for fact in facts if (one := of_facts(fact, device)) is not None]
    tight = min(held, key=lambda found: found.blocks_per_sm, default=None)
    spills = sum(fact.spill_instructions for fact in facts)
    paths = dict.fromkeys(fact.mma_path for fact in facts if fact.mma_path != "none")
    return [
        cell(where),
        str(max(fact.registers for fact in facts)) if facts else "",
        (f"{spills:,}" if spills else "none") if facts else "",
        cell(", ".join(paths)),
        f"{tight.blocks_per_sm} ({tight.limiter})" if tight else "",
        microseconds(outcome.total.median_us, 1) if outcome.total else "",
        microseconds(least.time_us, 1) if least else "",
        SIDES[least.bound] if least else "",
        least.device if least else "",
    ]


def _worst(found: Sequence[Record]) -> str:
    """The first limit of the costliest stage, of the target with most spills.

    A stage whose multiplications wait for each other comes before those that cost more.
    """
    passed = [record for record in found if isinstance(record.outcome, Passed)]
    if not passed:
        return ""
    record = max(passed, key=_spills)
    assert isinstance(record.outcome, Passed)
    stage = max(record.outcome.stages, key=lambda each: _weight(record, each), default=None)
    said = limits(record, stage) if stage else []
    if not said:
        return ""
    where = record.target.removeprefix("static/")
    return f"{said[0]} ({stage.name} on {where})" if stage else ""


def _weight(record: Record, stage: Stage) -> tuple[bool, int]:
    work = costs.cost(record, stage)
    return bool(stage.static and stage.static.serialized), work.flops if work else 0


def _spills(record: Record) -> int:
    assert isinstance(record.outcome, Passed)
    return sum(fact.spill_instructions for fact in record.outcome.facts)
