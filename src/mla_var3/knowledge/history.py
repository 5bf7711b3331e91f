"""Collects each pattern's measured gains from past version steps, and estimates them elsewhere.

``knowledge.matching`` ranks pages by the estimate.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from mla_var3.evidence import KernelIdentity, Record, Scalar
from mla_var3.evidence.compare import Comparison, neighbors
from mla_var3.knowledge import metrics, triggers
from mla_var3.knowledge.joining import distance, joined
from mla_var3.knowledge.pages import Catalogue, Document, version_of
from mla_var3.knowledge.schema import Impact, Trigger

#: Which versions a step leads between: language, workload, design and the earlier version.
Transition = tuple[str, str, str, str]
#: What a page may state as its impact, from the largest.
IMPACTS: tuple[str, ...] = get_args(Impact)


def transition(step: Comparison) -> Transition:
    """Which versions a step leads between, whatever the problem."""
    kernel = step.before.kernel
    return kernel.language, kernel.layer, kernel.design, kernel.version


def name(step: Comparison) -> str:
    """A step in words."""
    kernel, to = step.before.kernel, step.after.kernel.version
    return f"{kernel.language} {kernel.design} {kernel.version} to {to}, {step.before.slug}"


def timed(catalogue: Catalogue, layer: str = "*") -> list[Record]:
    """The committed records of timed runs of a workload, or of all: also those measured again."""
    return [
        record
        for record in catalogue.index.records
        if record.mode == "event" and record.is_timed and layer in ("*", record.kernel.layer)
    ]


def of_version(catalogue: Catalogue, kernel: KernelIdentity) -> list[Record]:
    """The newest committed records of one version, for each target, problem, mode and sources.

    Sources count, since a compile of today's hides none of those that an older run was of.
    """
    return catalogue.of_version.get(version_of(kernel), [])


def applied(step: Comparison, catalogue: Catalogue) -> list[Document]:
    """Pages that a step followed: optimizations it took up, anti-patterns it left behind."""
    before, after = step.before.kernel, step.after.kernel

    def follows(page: Document) -> bool:
        meta = page.pattern
        if meta.kind == "optimization":
            return catalogue.names(meta.used_by, after) and not catalogue.names(
                meta.used_by, before
            )
        return catalogue.names(meta.violated_by, before) and not catalogue.names(
            meta.violated_by, after
        )

    return [page for page in catalogue.patterns if follows(page) and _speaks_of(page, step.before)]


def _speaks_of(page: Document, record: Record) -> bool:
    """Whether a page can have moved a record: masks of causality move no problem without one."""
    asked = page.pattern.triggers
    if not triggers.applies(page.pattern, record):
        return False
    return not asked or any(_asks(trigger, record) for trigger in asked)


def _asks(trigger: Trigger, record: Record) -> bool:
    """Whether the problem of a record is one that a trigger asks for."""
    flags = (c for c in (trigger, *trigger.with_) if isinstance(c.value, bool))
    for condition in flags:
        found = metrics.readings_of(record, metrics.metric(condition.metric))
        if found and found[0].metric.origin == "plan" and not condition.holds(found[0].value):
            return False
    return True


@dataclass(frozen=True)
class Gain:
    """One measured gain of a pattern, and what it was measured on."""

    factor: float
    problem: Mapping[str, Scalar]
    transition: Transition


def gains(catalogue: Catalogue, layer: str = "*") -> dict[str, list[Gain]]:
    """Measured gains by the id of the page: of steps that applied it where it was called for.

    A step often applies several patterns. It counts for those that the earlier version's record
    triggers, since the others cannot have moved it.
    """
    found: dict[str, list[Gain]] = defaultdict(list)
    for step in neighbors(timed(catalogue, layer)):
        pages = applied(step, catalogue)
        if not pages:
            continue
        values = triggers.Values(joined(step.before, of_version(catalogue, step.before.kernel)))
        gain = Gain(step.gain, step.before.problem, transition(step))
        for page in pages:
            if triggers.fired(page.pattern, values):
                found[page.pattern.id].append(gain)
    return found


def priors(known: Mapping[str, Sequence[Gain]], catalogue: Catalogue) -> dict[str, float]:
    """What patterns of each stated impact brought here: the geometric mean over their pages.

    It ranks pages of which nothing was measured, and is told to nobody as their gain. An impact of
    which nothing was measured takes the mean over all; without any measurement there is none.
    """
    impact = {page.pattern.id: page.pattern.impact for page in catalogue.patterns}
    means: dict[str, list[float]] = defaultdict(list)
    for page, found in known.items():
        if page in impact and found:
            means[impact[page]].append(statistics.geometric_mean(gain.factor for gain in found))
    every = [mean for of_impact in means.values() for mean in of_impact]
    return {name: statistics.geometric_mean(means.get(name, every)) for name in IMPACTS if every}


def expected(
    prior: float | None, problem: Mapping[str, Scalar], known: Iterable[Gain]
) -> float | None:
    """What a pattern can be expected to bring on a problem, to rank it; None without a measurement.

    The geometric mean of what it brought, the nearer the problem the heavier (a factor e per unit
    of distance), together with what patterns of its impact brought, which counts as much as one
    measurement of the very same problem.
    """
    weighed = [(math.exp(-distance(g.problem, problem)), math.log(g.factor)) for g in known]
    terms = [*([(1.0, math.log(prior))] if prior else []), *weighed]
    if not terms:
        return None
    return math.exp(math.fsum(w * x for w, x in terms) / math.fsum(w for w, _ in terms))
