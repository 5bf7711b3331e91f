"""Which pages are worth reading for a record: its metrics against the pages' triggers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mla_var3.knowledge import evidence, metrics
from mla_var3.knowledge.metrics import Origin, Reading
from mla_var3.knowledge.pages import Catalogue, Document, load_all, natural
from mla_var3.knowledge.schema import SHARED, Condition, FrontMatter, PairEvidence, Trigger
from mla_var3.paths import repo_root
from mla_var3.records import Record
from mla_var3.workloads import workloads

#: What a fired trigger counts, by where its metric comes from: what was measured or compiled says
#: more about a kernel than the problem sizes, which hold for every version alike.
WEIGHT: dict[Origin, float] = {
    "counter": 4,
    "time": 4,
    "static": 4,
    "execution": 3,
    "launch": 3,
    "roofline": 2,
    "tiling": 2,
    "plan": 1,
}
IMPACT = {"high": 3, "medium": 2, "low": 1}


@dataclass(frozen=True)
class Fired:
    """A trigger and the value that fired it.

    Attributes:
        trigger: The trigger.
        reading: The value.
    """

    trigger: Trigger
    reading: Reading

    def __str__(self) -> str:
        return f"{self.reading} ({self.trigger})"


@dataclass(frozen=True)
class Match:
    """A page that a record leads to.

    Attributes:
        page: The page.
        fired: Its triggers that fired, the heaviest first; one per trigger.
        score: Impact times the summed weights of the triggers' metrics.
        known_violation: Whether the page lists the record's version under ``violated_by``.
    """

    page: Document
    fired: tuple[Fired, ...]
    score: float
    known_violation: bool = False


@dataclass(frozen=True)
class NextStep:
    """One line of "what to try next".

    Attributes:
        id: Id of the page.
        title: Title of the page.
        page: Path of the page from the top of the checkout.
        because: Which value fired which trigger.
        score: See ``Match``.
        gain: The most that a pair of records shows it to have gained; empty without one.
    """

    id: str
    title: str
    page: str
    because: str
    score: float
    gain: str = ""

    def __str__(self) -> str:
        gained = f"; measured gain: {self.gain}" if self.gain else ""
        return f"{self.title} ({self.page}): {self.because}{gained}"


def fire(trigger: Trigger, readings: Sequence[Reading]) -> Fired | None:
    """The value that fires a trigger, or None.

    The conditions under ``with`` must hold of the same stage where both speak of stages.
    """
    for reading in readings:
        if reading.metric.name == trigger.metric and trigger.holds(reading.value):
            places = [r for r in readings if None in (r.stage, reading.stage) or
                      r.stage == reading.stage]  # fmt: skip
            if all(_any(condition, places) for condition in trigger.with_):
                return Fired(trigger, reading)
    return None


def _any(condition: Condition, readings: Sequence[Reading]) -> bool:
    return any(r.metric.name == condition.metric and condition.holds(r.value) for r in readings)


def applies(meta: FrontMatter, record: Record) -> bool:
    """Whether a page speaks of the record's language, arch and regime.

    What the record does not state (a run on the CPU has no arch) rules nothing out; neither does a
    page that names none of the regimes of the record's workload.
    """
    arch, regime = record.arch, metrics.regime_of(record)
    workload = workloads().get(record.kernel.layer)
    named = {r.name for r in workload.regimes}.intersection(meta.regimes) if workload else set()
    return (
        meta.scope in (SHARED, record.kernel.language)
        and (arch is None or arch.rstrip("af") in meta.archs)
        and (not named or regime is None or regime in named)
    )


def match(record: Record, catalogue: Catalogue) -> list[Match]:
    """Pages with a trigger that the record fires, best first.

    A page that the version uses already is not news. Pages that list it under ``violated_by`` count
    double; of equal scores the smaller id comes first.
    """
    readings = metrics.readings(record)
    found = []
    for page in catalogue.patterns:
        meta = page.pattern
        if not applies(meta, record) or catalogue.names(meta.used_by, record.kernel):
            continue
        fired = [f for trigger in meta.triggers if (f := fire(trigger, readings))]
        if not fired:
            continue
        fired.sort(key=lambda f: -WEIGHT[f.reading.metric.origin])
        violated = catalogue.names(meta.violated_by, record.kernel)
        weight = sum(
            WEIGHT[metrics.metric(name).origin] for name in {f.trigger.metric for f in fired}
        )
        score = IMPACT[meta.impact] * weight * (2 if violated else 1)
        found.append(Match(page, tuple(fired), score, violated))
    return sorted(found, key=lambda m: (-m.score, natural(m.page.pattern.id)))


def steps(made: Record | Sequence[Record], catalogue: Catalogue, top: int = 3) -> list[NextStep]:
    """What to try next after a run that left one record or several (one per arch, say).

    A page counts once, for the record in which it scores best.
    """
    made = [made] if isinstance(made, Record) else list(made)
    best: dict[str, NextStep] = {}
    for record in made:
        where = f" on {record.target.removeprefix('static/')}" if len(made) > 1 else ""
        for found in match(record, catalogue):
            meta = found.page.pattern
            because = "; ".join(map(str, found.fired[:2])) + where
            step = NextStep(meta.id, meta.title, found.page.name, because, found.score)
            if meta.id not in best or best[meta.id].score < step.score:
                best[meta.id] = step
    first = sorted(best.values(), key=lambda step: (-step.score, natural(step.id)))[:top]
    pages = {page.pattern.id: page for page in catalogue.patterns}
    return [replace(step, gain=gain(pages[step.id], catalogue)) for step in first]


def gain(page: Document, catalogue: Catalogue) -> str:
    """The largest gain in time among a page's pairs of records; empty where it has none.

    Raises:
        HyperMlaError: A record of the page is missing or not sound.
    """
    pairs = [item for item in page.pattern.evidence if isinstance(item, PairEvidence)]
    found = [row for pair in pairs for row in evidence.compare(pair, catalogue)]
    timed = [row for row in found if row.after.metric.name == "total_us" and (row.ratio or 0) > 1]
    most = max(timed, key=lambda row: row.ratio or 0, default=None)
    return evidence.change_text(most.after.metric, most.ratio) if most else ""


def next_steps(
    made: Record | Sequence[Record], top: int = 3, *, root: Path | None = None
) -> list[str]:
    """What to try next, one line per step: title, path of the page, what fired which trigger.

    Args:
        made: The record of a run, or the records.
        top: Most steps.
        root: Top of the checkout; this one's by default.

    Returns:
        The best matches; none when no trigger fires, when the run failed without stating anything
        that a trigger looks at, or when there is no knowledge folder (an installed package).
    """
    root = repo_root() if root is None else root
    if not (root / "knowledge").is_dir():
        return []
    return [str(step) for step in steps(made, load_all(root), top)]
