"""Reports how a version stands by timed records: against others, against its bound, and its limit.

Ratios are between times of one run, by the one rule of ``mla_var3.evidence.compare``. The summary
of a run prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mla_var3 import evidence, roofline
from mla_var3.devices import load
from mla_var3.errors import UnknownNameError
from mla_var3.evidence import Passed, Record, Scalar, Stage
from mla_var3.evidence.compare import Versus, median_us, said, than, versus, word
from mla_var3.knowledge.joining import distance, joined
from mla_var3.profiling.report import SIDES, limits
from mla_var3.runtime import costs, registry
from mla_var3.runtime.registry import Version
from mla_var3.tables import axes
from mla_var3.workloads import Workload, workloads

#: The language of designs whose kernel is somebody's library.
LIBRARY = "library"
NEVER = "no common run"
#: A bound of another form is told where it is lower than this share of the version's own.
TELLING = 0.95
#: A version's own way is told of where it takes this many times the bound.
TELLING_MORE = 1.05


@dataclass(frozen=True)
class Standing:
    """How a version stands.

    Attributes:
        version: The version.
        records: All timed records of its workload.
        measured: Its timed record nearest to what was asked, with what its other records state;
            None where it was never timed.
        asked: The problem that was asked for.
    """

    version: Version
    records: tuple[Record, ...]
    measured: Record | None
    asked: Mapping[str, Scalar]

    @cached_property
    def workload(self) -> Workload:
        """The workload."""
        return workloads()[self.version.layer]

    @cached_property
    def before(self) -> Version | None:
        """The version before it."""
        versions = registry.select(self.version.qualified)
        place = next(i for i, v in enumerate(versions) if v.version == self.version.version)
        return versions[place - 1] if place else None

    @cached_property
    def peer(self) -> tuple[str, str] | None:
        """Design and name of the library's kernel that the workload is compared with first."""
        return next(iter(self.workload.peers.items()), None)

    def against(self, chosen: Callable[[Record], bool]) -> Versus:
        """This version against other records, wherever one run timed both at the same problem."""
        same = evidence.compare.same_work(self.workload.compared)
        mine = [record for record in self.records if self.version == _version(record)]
        return versus(filter(chosen, self.records), mine, same)

    @cached_property
    def best(self) -> Record | None:
        """The fastest version of ours in the run of ``measured`` at its problem, or itself."""
        if self.measured is None:
            return None
        mine, same = self.measured, evidence.compare.same_work(self.workload.compared)
        together = [
            record for record in self.records
            if (record.run, same(record)) == (mine.run, same(mine)) and self._equal_work(record)
        ]  # fmt: skip
        return min(together, key=median_us, default=None)

    def _equal_work(self, record: Record) -> bool:
        """Whether a record is of a kernel of ours that is spared nothing this one does."""
        lighter = self.workload.lighter
        assert self.measured is not None
        return record.kernel.language != LIBRARY and (
            not lighter(record.problem) or lighter(self.measured.problem)
        )

    @cached_property
    def heaviest(self) -> Stage | None:
        """The stage that takes longest."""
        outcome = self.measured.outcome if self.measured else None
        stages = outcome.stages if isinstance(outcome, Passed) else []
        timed = [stage for stage in stages if stage.duration is not None]
        longest = max(timed, key=lambda s: s.duration.median_us, default=None)  # type: ignore[union-attr]
        return longest or next(iter(stages), None)


def of(
    version: Version,
    asked: Mapping[str, Scalar],
    index: evidence.Index | None = None,
    made: Sequence[Record] = (),
) -> Standing:
    """How a version stands, by the committed records and those that a run just made.

    Args:
        version: The version.
        asked: The problem asked for; the version's nearest timed record speaks for it.
        index: The committed records; those of the checkout by default.
        made: Records of the run.
    """
    known = [*(index or evidence.Index()).records, *made]
    timed = tuple(r for r in known if r.is_timed and r.kernel.layer == version.layer)
    mine = [record for record in timed if _version(record) == version]
    nearest = max(mine, key=lambda r: _nearness(r, asked, made), default=None)
    own = (record for record in known if _version(record) == version)
    return Standing(version, timed, joined(nearest, own) if nearest else None, asked)


def _nearness(
    record: Record, asked: Mapping[str, Scalar], made: Sequence[Record]
) -> tuple[bool, float, bool, object]:
    """What this run timed first; then the nearest problem, the newest of equals."""
    given = {axis: value for axis, value in asked.items() if value is not None}
    apart = round(distance(record.problem, given), 6)
    return record in made, -apart, not evidence.is_stale(record), record.time


def _version(record: Record) -> Version | None:
    kernel = record.kernel
    try:
        return registry.find(f"{kernel.design}@{kernel.language}", kernel.version)
    except UnknownNameError:
        return None


# -- in words --------------------------------------------------------------------------------------


def facts(found: Standing) -> list[tuple[str, str]]:
    """What is known, a name and a sentence each: versus others, time, bound, what limits it."""
    if found.measured is None:
        return [("Measured", "never; no record states a time of it.")]
    return [("Measured", _time(found)), *_compared(found), *_limit(found)]


def _compared(found: Standing) -> Iterable[tuple[str, str]]:
    if (before := found.before) is not None:
        versus_before = found.against(lambda record: _version(record) == before)
        yield f"Against {before.version}", f"{_many(found, versus_before)}."
    yield "Against the best", f"{_best(found)}."
    if (peer := found.peer) is not None and found.version.design != peer[0]:
        yield f"Against {peer[1]}", f"{_peer(found, peer[0])}."


def _peer(found: Standing, design: str) -> str:
    """Against a library's kernel; where no run timed both, how the best of ours stands to it."""
    direct = found.against(lambda record: record.kernel.design == design)
    best = _version(found.best) if found.best is not None else None
    if direct.pairs:
        return _many(found, direct) + _other_work(found.version, direct)
    if best is None or best == found.version:
        return NEVER
    theirs = replace(found, version=best)
    known = theirs.against(lambda record: record.kernel.design == design)
    if not known.pairs:
        return NEVER
    return f"{NEVER}; {best.key} is {_many(found, known)}{_other_work(best, known)}"


def _other_work(version: Version, found: Versus) -> str:
    """What a version covers, where that is not what the kernel beside it covers."""
    covers, other = version.plan_class().covers, _version(found.pairs[0].before)
    same = other is not None and other.plan_class().covers == covers
    return "" if same else f"; {version.key} covers {covers}"


def _many(standing: Standing, found: Versus) -> str:
    """A comparison over all problems in words; the device where it is not the measured one."""
    pairs = found.pairs
    if not pairs:
        return NEVER
    places = {pair.after.target for pair in pairs}
    here = standing.measured is not None and places == {standing.measured.target}
    on = "" if here else f" on {' and '.join(sorted(places))}"
    stale = sum(evidence.is_stale(p.before) or evidence.is_stale(p.after) for p in pairs)
    old = f", {stale} of older code" if stale else ""
    if len(pairs) == 1:
        return f"{said(pairs[0].gain, 1.0)} at {axes(pairs[0].after.problem)}{on}{old}"
    return f"{found.told}{on}{old}"


def _best(found: Standing) -> str:
    mine, best = found.measured, found.best
    assert mine is not None
    if best is None or _version(best) == found.version:
        return "it is the fastest version of its run there"
    other = _version(best)
    name = other.key if other is not None else f"{best.kernel.design} {best.kernel.version}"
    us, theirs = median_us(mine), median_us(best)
    text = f"{than(theirs, us, name)} ({theirs:,.1f} us there"
    covers = other.plan_class().covers if other is not None else ""
    if word(theirs, us) == "as fast" or covers in ("", found.version.plan_class().covers):
        return f"{text})"
    return f"{text}, covers {covers.partition(',')[0]})"


def _time(found: Standing) -> str:
    mine = found.measured
    assert mine is not None
    device, least = roofline.device_of(mine), costs.bound(mine)
    where = load(device.key).name if device is not None else mine.target
    at = axes(_shared(found, mine.problem))
    asked = axes(_shared(found, found.asked))
    nearest = "" if asked == at else ", the nearest that was timed"
    own = {k: v for k, v in mine.problem.items() if k not in found.workload.compared}
    chosen = axes({k: v for k, v in own.items() if found.asked.get(k) is None})
    at += f" ({chosen})" if chosen else ""
    text = f"{median_us(mine):,.1f} us at {at} on {where}{nearest}"
    if evidence.is_stale(mine):
        text += ", of older code"
    if least is None:
        return f"{text}; no bound is known there."
    times = median_us(mine) / least.time_us
    text += (
        f"; {times:.2f} times the problem's bound, {least.time_us:,.1f} us by {SIDES[least.bound]}"
    )
    return f"{text}{_sister(found, least.time_us)}{_own_work(mine, least)}."


def _own_work(mine: Record, least: roofline.Prediction) -> str:
    """What the work takes at least as this version goes about it, where that is more."""
    cost, device = costs.cost(mine), roofline.device_of(mine)
    rates = roofline.rates_of(device, roofline.dtype_of(mine), bound=True) if device else None
    if cost is None or rates is None:
        return ""
    own = roofline.predict(cost.flops, cost.bytes, rates, least.device)
    if own.time_us <= least.time_us * TELLING_MORE:
        return ""
    return f"; its own way takes at least {own.time_us:,.1f} us by {SIDES[own.bound]}"


def _sister(found: Standing, bound_us: float) -> str:
    """What designs of another form may take, where that is less than this form's bound."""
    mine = found.measured
    assert mine is not None
    device = roofline.device_of(mine)
    rates = roofline.rates_of(device, roofline.dtype_of(mine), bound=True) if device else None
    least = found.workload.least_us(mine.problem, rates) if rates is not None else None
    if least is None or least > bound_us * TELLING:
        return ""
    return f" (a design that keeps another cache may take {least:,.1f} us)"


def _limit(found: Standing) -> Iterable[tuple[str, str]]:
    mine, stage = found.measured, found.heaviest
    assert mine is not None
    if stage is None:
        return
    held = limits(mine, stage)
    assert isinstance(mine.outcome, Passed)
    share = ""
    if stage.duration is not None and len(mine.outcome.stages) > 1:
        share = f" ({stage.duration.median_us / median_us(mine):.0%} of the time)"
    by = held[0] if held else "nothing that its records state"
    yield "Limited there", f"stage {stage.name}{share}: {by}."


def _shared(found: Standing, problem: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The axes that designs are compared at."""
    return {axis: problem.get(axis) for axis in found.workload.compared}
