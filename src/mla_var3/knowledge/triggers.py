"""Evaluates the triggers of pattern pages on a record's metrics, and returns those that fire."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.archs import base_arch
from mla_var3.evidence import Passed, Record
from mla_var3.knowledge import metrics
from mla_var3.knowledge.metrics import Reading
from mla_var3.knowledge.schema import SHARED, Condition, FrontMatter, Trigger
from mla_var3.workloads import workloads

#: What many causes have in common: a problem, its bound, and a time above it.
_UNDECIDED = frozenset({"plan", "roofline", "time"})


@dataclass(frozen=True)
class Fired:
    """A trigger and the value that fired it.

    Attributes:
        trigger: The trigger.
        reading: The value.
        stage: Stage that it speaks of; None where it speaks of the whole run.
        gain: What its cause costs, as a factor of time; None where that is not worked out.
    """

    trigger: Trigger
    reading: Reading
    stage: str | None = None
    gain: float | None = None

    @property
    def decides(self) -> bool:
        """Whether a fact of the kernel fired it, and not its problem and time alone."""
        conditions = (self.trigger, *self.trigger.with_)
        found = {metrics.metric(condition.metric).origin for condition in conditions}
        return self.gain is not None or not found <= _UNDECIDED

    def __str__(self) -> str:
        return f"{self.reading} ({self.trigger})"


class Values:
    """Values of a record, each metric read when it is first asked for."""

    def __init__(self, record: Record) -> None:
        self.record = record
        stages = record.outcome.stages if isinstance(record.outcome, Passed) else []
        self.places: list[str | None] = [stage.name for stage in stages]
        self._read: dict[str, list[Reading]] = {}

    def of(self, name: str) -> list[Reading]:
        """The values of a metric, stage by stage."""
        if name not in self._read:
            self._read[name] = metrics.readings_of(self.record, metrics.metric(name))
        return self._read[name]

    def holding(self, condition: Condition, place: str | None) -> Reading | None:
        """The value that makes a condition true in a stage, or of the whole run."""
        here = (r for r in self.of(condition.metric) if r.stage in (None, place))
        return next((r for r in here if condition.holds(r.value)), None)


def fire(trigger: Trigger, values: Values) -> list[Fired]:
    """Where a trigger fires: once per stage, or once for the whole run.

    All of its conditions hold of the same stage where they speak of stages.
    """
    found: dict[str | None, Fired] = {}
    staged = any(metrics.metric(c.metric).per_stage for c in (trigger, *trigger.with_))
    for place in values.places or [None]:
        reading = values.holding(trigger, place)
        if reading is not None and all(values.holding(c, place) for c in trigger.with_):
            stage = place if staged else None
            found.setdefault(stage, Fired(trigger, reading, stage, _gain(trigger, values, place)))
    return list(found.values())


def _gain(trigger: Trigger, values: Values, place: str | None) -> float | None:
    if trigger.gain is None:
        return None
    here = (r.value for r in values.of(trigger.gain) if r.stage in (None, place))
    return next((float(value) for value in here if isinstance(value, (int, float))), None)


def fired(meta: FrontMatter, values: Values) -> list[Fired]:
    """All triggers of a page that fire."""
    return [found for trigger in meta.triggers for found in fire(trigger, values)]


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
        and (arch is None or base_arch(arch) in meta.archs)
        and (not named or regime is None or regime in named)
    )
