"""Fills a new campaign's memory from the design's devlog and records: an entry per version."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mla_var3 import evidence, knowledge
from mla_var3.campaign import memory
from mla_var3.campaign.memory import Entry
from mla_var3.evidence import KernelIdentity, Passed, Record, Scalar
from mla_var3.evidence.compare import Comparison, median_us, neighbors, said, word
from mla_var3.knowledge import history
from mla_var3.knowledge.joining import distance
from mla_var3.knowledge.pages import Catalogue
from mla_var3.knowledge.pages import Entry as LogEntry
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version

#: Longest text that is taken over of a section.
LONGEST = 4000
CHECKED = "checked by the project's own tests"
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_MACRO = re.compile(r"\{\{.*?\}\}")


def entries(
    start: Version, problem: Mapping[str, Scalar], catalogue: Catalogue | None = None
) -> list[Entry]:
    """An entry for each version of a design, in order; the gates make the start's anew.

    Args:
        start: The version that the campaign begins with.
        problem: The campaign's problem; times are of the nearest problem that was timed.
        catalogue: The knowledge.
    """
    catalogue = catalogue or knowledge.load_all()
    siblings = registry.select(start.qualified)
    steps = _steps(start, problem, catalogue)
    log = catalogue.devlogs.get(start.design_key)
    told = {one.version: one for one in log.entries} if log is not None else {}
    return [
        _entry(one, before, told.get(one.version), steps.get(one.version), catalogue)
        for before, one in zip([None, *siblings], siblings, strict=False)
    ]


def _steps(
    start: Version, problem: Mapping[str, Scalar], catalogue: Catalogue
) -> dict[str, Comparison]:
    """Each version against the one before it, at the nearest problem that one run timed both at."""
    mine = [
        record
        for record in history.timed(catalogue, start.layer)
        if (record.kernel.language, record.kernel.design) == (start.language, start.design)
    ]
    found: dict[str, Comparison] = {}
    for step in neighbors(mine):
        name = step.after.kernel.version
        if name not in found or _far(step, problem) < _far(found[name], problem):
            found[name] = step
    return found


def _far(step: Comparison, problem: Mapping[str, Scalar]) -> float:
    return distance(step.after.problem, problem)


def _entry(
    version: Version,
    before: Version | None,
    told: LogEntry | None,
    step: Comparison | None,
    catalogue: Catalogue,
) -> Entry:
    followed = _followed(version, before, catalogue)
    times = None if step is None or before is None else _performance(step)
    content = {
        "version": version.version,
        "origin": "history",
        "parent": before.version if before else None,
        "subject": version.key,
        "hypothesis": _plain(told.section("Predicted") if told else "") or "not told",
        "pattern": followed[0] if len(followed) == 1 else "",
        "evidence": [evidence.address(step.before)] if step else [],
        "change": _change(told),
        "correctness": {"status": "passed", "message": CHECKED},
        "performance": times,
        "facts": [*_said(step), *_follows(followed)],
        "verdict": "baseline" if before is None else word_of(step),
        "negative": bool(told and told.negative),
    }
    return memory.entry_of(content, version.version)


def word_of(step: Comparison | None) -> memory.Verdict:
    """What the times of a step say; that nothing was timed where there is none."""
    if step is None:
        return "not timed"
    return word(median_us(step.before), median_us(step.after))


def _performance(step: Comparison) -> dict[str, object]:
    return {
        "median_us": median_us(step.after), "parent_us": median_us(step.before),
        "run": step.after.run, "parent_run": step.before.run, "device": step.after.target,
        "protocol": protocol_of(step.after),
    }  # fmt: skip


def protocol_of(record: Record) -> str:
    """How a timed record was timed, in words."""
    outcome = record.outcome
    assert isinstance(outcome, Passed)
    assert outcome.protocol is not None
    flushed = ", L2 flushed" if outcome.protocol.l2_flush else ""
    return f"{outcome.protocol.timer}, {outcome.protocol.bench_runs} runs{flushed}"


def _said(step: Comparison | None) -> list[str]:
    if step is None:
        return []
    found = said(median_us(step.before), median_us(step.after))
    return [f"{found} at {step.after.slug} on {step.after.target}"]


def _follows(pages: Sequence[str]) -> list[str]:
    return [f"follows {', '.join(pages)}"] if len(pages) > 1 else []


def _followed(version: Version, before: Version | None, catalogue: Catalogue) -> list[str]:
    """Pages that a version follows and the one before it did not, by id."""
    if before is None:
        return []
    new, old = _identity(version), _identity(before)
    found = []
    for page in catalogue.patterns:
        keys = page.pattern.used_by if page.pattern.kind == "optimization" else (
            page.pattern.violated_by
        )  # fmt: skip
        has, had = catalogue.names(keys, new), catalogue.names(keys, old)
        if (has and not had) if page.pattern.kind == "optimization" else (had and not has):
            found.append(page.pattern.id)
    return found


def _identity(version: Version) -> KernelIdentity:
    return KernelIdentity(
        language=version.language, package=version.package, layer=version.layer,
        design=version.design, version=version.version, sources={},
    )  # fmt: skip


def _change(told: LogEntry | None) -> str:
    if told is None:
        return "its devlog has no entry"
    return "\n\n".join(filter(None, [told.verdict, _plain(told.section("What changed"))]))


def _plain(text: str) -> str:
    """Markdown without links and macros."""
    return _MACRO.sub("", _LINK.sub(r"\1", text)).strip()[:LONGEST]
