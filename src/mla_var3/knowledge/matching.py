"""Advice for a record: returns the pattern pages that it triggers, ranked by expected gain.

A page is found by its triggers, on all that the records of a version state together. What it can be
expected to bring follows from what it brought in like cases, and never exceeds what the bound of
the stage leaves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mla_var3.evidence import Passed, Record
from mla_var3.knowledge import history, triggers
from mla_var3.knowledge.history import Gain
from mla_var3.knowledge.joining import joined
from mla_var3.knowledge.pages import Catalogue, Document, load_all, natural
from mla_var3.knowledge.schema import SHARED
from mla_var3.knowledge.triggers import Fired, Values
from mla_var3.paths import repo_root
from mla_var3.runtime import costs

#: The least gain worth a word: the same kernel moves by several percent between runs.
WORTH = 1.1

#: How many times too high gains of like cases are in the median, over steps of the history without
#: what the step itself taught: only steps that gained teach a gain.
OPTIMISM = 1.33
#: What a step brought over what pages promise before it, from one in ten to nine in ten of the
#: steps of the history whose page advice names. A gain that facts work out is right in the median.
BY_FACTS, BY_LIKE_CASES = (0.75, 1.43), (0.71, 1.87)

Gains = Mapping[str, Sequence[Gain]]


@dataclass(frozen=True)
class Match:
    """A page that a record leads to.

    Attributes:
        page: The page.
        fired: What fired its triggers, where most is to be gained first.
        gain: What it is ranked by: how many times faster versions became by it or by pages of its
            impact, up to what the bound leaves; None where nothing was ever measured.
        measured: Gains of the steps that applied it where it was called for.
        left: How many times faster the version could be by it at most; see ``most``.
        known_violation: Whether the page lists the record's version under ``violated_by``.
        also: Pages that say the same of the same value.
    """

    page: Document
    fired: tuple[Fired, ...]
    gain: float | None
    measured: tuple[float, ...] = ()
    left: float = math.inf
    known_violation: bool = False
    also: tuple[Document, ...] = ()

    @property
    def expected(self) -> tuple[float, float] | None:
        """What it can be expected to bring, from the least to the most; None where nobody knows."""
        if self.gain is None:
            return None
        low, high = BY_LIKE_CASES if self.fired[0].gain is None else BY_FACTS
        return max(1.0, self.gain * low), max(1.0, min(self.gain * high, self.left))

    @property
    def ids(self) -> tuple[str, ...]:
        """Id of the page and of those that say the same."""
        return (self.page.pattern.id, *(page.pattern.id for page in self.also))


@dataclass(frozen=True)
class NextStep:
    """One line of "what to try next".

    Attributes:
        id: Id of the page.
        title: Title of the page.
        page: Path of the page from the top of the checkout.
        because: Which value fired which trigger.
        gain: See ``Match``.
        value: The value that fired first, and where.
        also: Ids of pages that say the same.
        measured: See ``Match``.
        expected: See ``Match``.
    """

    id: str
    title: str
    page: str
    because: str
    gain: float | None
    value: str = ""
    also: tuple[str, ...] = ()
    measured: tuple[float, ...] = ()
    expected: tuple[float, float] | None = None

    def __str__(self) -> str:
        more = f"; see also {', '.join(self.also)}" if self.also else ""
        told = "" if self.expected is None else f"expected gain {_interval(self.expected)}; "
        return f"{self.title} ({self.page}): {self.because}; {told}{brought(self.measured)}{more}"

    @property
    def brief(self) -> str:
        """The step in a line: what to do, its page, why, and what it brought where measured."""
        gain = f"; {brought(self.measured)}" if self.measured else ""
        number = re.match(r"[oa]\d+(?=-)", self.id)  # It names a page, and keeps to one line.
        page = number.group() if number else self.id
        # The title of an anti-pattern says what is there, and not what to do.
        what = f"Undo: {self.title}" if "/anti-patterns/" in self.page else self.title
        return f"{what} ({page}): {self.value or self.because}{gain}"


def _interval(expected: tuple[float, float]) -> str:
    low, high = (f"{gain:.2g}x" for gain in expected)
    return low if low == high else f"up to {high}" if low == "1x" else f"{low} to {high}"


def brought(measured: Sequence[float]) -> str:
    """Gain that was measured for a page, from the least to the most; ``not measured`` without."""
    if not measured:
        return "gain not measured"
    ordered = [f"{gain:.3g}x" for gain in sorted(measured)]
    ends = dict.fromkeys([*ordered[:1], *ordered[-1:]])
    return f"measured gain {' to '.join(ends)}"


def most(record: Record, stage: str | None) -> float:
    """How many times faster the whole run could be if a stage, or all of it, reached its bound.

    Infinite where nothing was timed or no bound is known.
    """
    outcome = record.outcome
    if not isinstance(outcome, Passed) or outcome.total is None:
        return math.inf
    one = next((s for s in outcome.stages if s.name == stage), None)
    fraction = costs.fraction(record, one)
    if fraction is None:
        return math.inf
    share = 1.0
    if one is not None and one.duration is not None:
        share = min(1.0, one.duration.median_us / outcome.total.median_us)
    return 1 / (1 - share + share * min(1.0, fraction))


def match(record: Record, catalogue: Catalogue, gains: Gains | None = None) -> list[Match]:
    """Pages with a trigger that the record fires, the largest expected gain first.

    What can bring less than ``WORTH`` is not said; neither is a page that neither a fact of the
    kernel nor a gain in like cases speaks for (see ``deciding``). Of pages that say the same of the
    same value the first speaks for the others.

    Args:
        record: The record, completed by the committed ones of the same sources.
        catalogue: The pages.
        gains: What pages brought; those of the catalogue's records by default.
    """
    if gains is None:
        gains = history.gains(catalogue, record.kernel.layer)
    values = Values(joined(record, history.of_version(catalogue, record.kernel)))
    priors = history.priors(gains, catalogue)
    weighed = (_weighed(page, values, catalogue, gains, priors) for page in catalogue.patterns)
    return _once(sorted((found for found in weighed if found is not None), key=_rank))


def _rank(found: Match) -> tuple[bool, float, int, float, bool, bool, tuple[str | int, ...]]:
    """What facts work out first, then by gain, impact and what is left; the principle first."""
    meta = found.page.pattern
    return (
        found.fired[0].gain is None, -(found.gain or 0.0), history.IMPACTS.index(meta.impact),
        -found.left, meta.kind != "optimization", meta.scope != SHARED, natural(meta.id),
    )  # fmt: skip


def _weighed(
    page: Document, values: Values, catalogue: Catalogue, gains: Gains, priors: Mapping[str, float]
) -> Match | None:
    meta, record = page.pattern, values.record
    if not triggers.applies(meta, record):
        return None
    found = triggers.fired(meta, values)
    if not any(fired.decides for fired in found) and not gains.get(meta.id):
        return None
    found = [fired for fired in found if fired.gain is None or fired.gain >= WORTH]
    if not found:
        return None
    found.sort(key=lambda fired: (-(fired.gain or 0), -most(record, fired.stage)))
    known = gains.get(meta.id, ())
    gain = found[0].gain
    if gain is None:
        gain = history.expected(priors.get(meta.impact), record.problem, known)
    left = math.inf  # Less work has a bound of its own.
    if not {"flops", "bytes"} & meta.affects.keys():
        left = most(record, found[0].stage)
    if min(left, math.inf if gain is None else gain) < WORTH:
        return None
    violated = catalogue.names(meta.violated_by, record.kernel)
    if gain is not None:
        gain = max(1.0, min(gain, left) / (1.0 if found[0].gain is not None else OPTIMISM))
    return Match(
        page, tuple(found), gain,
        tuple(each.factor for each in known), left, violated,
    )  # fmt: skip


def _once(found: Sequence[Match]) -> list[Match]:
    kept: list[Match] = []
    for item in found:
        twin = next((i for i, other in enumerate(kept) if _same_advice(other, item)), None)
        if twin is None:
            kept.append(item)
        else:
            kept[twin] = replace(kept[twin], also=(*kept[twin].also, item.page))
    return kept


def _same_advice(one: Match, other: Match) -> bool:
    """Whether two pages name each other and were fired by one value."""
    linked = (
        other.page.pattern.id in one.page.pattern.interacts
        or one.page.pattern.id in other.page.pattern.interacts
    )
    return linked and bool({f.reading for f in one.fired} & {f.reading for f in other.fired})


def steps(made: Record | Sequence[Record], catalogue: Catalogue, top: int = 3) -> list[NextStep]:
    """What to try next after a run that left one record or several (one per arch, say).

    A page counts once, for the record in which it can bring most. What a timed run asks for comes
    before what is only known of a compile for another device.
    """
    made = [made] if isinstance(made, Record) else list(made)
    gains = {layer: history.gains(catalogue, layer) for layer in {r.kernel.layer for r in made}}
    best: dict[str, tuple[Match, str, bool]] = {}
    for record in made:
        where = f" on {record.target.removeprefix('static/')}" if len(made) > 1 else ""
        for found in match(record, catalogue, gains[record.kernel.layer]):
            meta = found.page.pattern
            if meta.id not in best or _rank(found) < _rank(best[meta.id][0]):
                best[meta.id] = found, where, record.is_timed
    ranked = sorted(best.values(), key=_order)
    return [_step(found, where) for found, where, _ in ranked[:top]]


def _order(item: tuple[Match, str, bool]) -> tuple[bool, object]:
    """What a timed run asks for first, then by rank."""
    found, _, timed = item
    return not timed, _rank(found)


def _step(found: Match, where: str) -> NextStep:
    meta = found.page.pattern
    told = dict.fromkeys(str(fired) for fired in found.fired)
    because = "; ".join(list(told)[:2]) + where
    also = tuple(page.pattern.id for page in found.also)
    return NextStep(
        meta.id, meta.title, found.page.name, because, found.gain,
        f"{found.fired[0].reading.brief}{where}", also, found.measured, found.expected,
    )  # fmt: skip


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
