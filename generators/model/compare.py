"""Decides from timed records which of several runs is fastest, and whether a version gained.

Pages show these as ``Best`` and, against the version before, ``Verdict``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from generators.model import problems
from generators.model.run import Run
from generators.model.site import Site
from mla_var3 import evidence
from mla_var3.evidence import Record
from mla_var3.evidence.compare import Comparison, Versus, versus, word
from mla_var3.knowledge import metrics
from mla_var3.runtime.registry import Version
from mla_var3.versions import number_of
from mla_var3.workloads import workloads


@dataclass(frozen=True)
class Best:
    """What to use of several runs.

    Attributes:
        run: The fastest; of versions of its design within noise of it the newest.
        rival: A run within noise that is faster, or of another design.
        outdated: The fastest stale run where it beats ``run``, a fresh one, beyond noise.
    """

    run: Run
    rival: Run | None
    outdated: Run | None = None

    @property
    def us(self) -> float:
        """Microseconds of the run."""
        return self.run.total.median_us


def best(runs: Sequence[Run], earlier: Iterable[Run] = ()) -> Best:
    """What to use of timed runs of one problem, fastest first and at least one.

    Times of different runs differ by clock and temperature. So the newest run that timed several
    of them decides, with what was timed after it; without one the shortest time does. A run that
    left out the design of the shortest time says nothing of it, and gives way to one that has it.

    Args:
        runs: The newest time of each version.
        earlier: Times that were measured again since. Who was timed alone since stands with its
            time of a run of several, if that is among these: a time by itself compares with none.
    """
    runs = _beside_others(runs, earlier)
    together = _newest_together(runs)
    near = [run for run in together if run.stale == together[0].stale and alike(run, together[0])]
    own = [run for run in near if _kernel(run)[0] == _kernel(together[0])[0]]
    chosen = max(own, key=lambda run: _kernel(run)[1])
    faster = near[: near.index(chosen)]
    others = (run for run in near if run in faster or _kernel(run)[0] != _kernel(chosen)[0])
    return Best(chosen, next(others, None), outdated(runs, chosen))


def _beside_others(runs: Sequence[Run], earlier: Iterable[Run]) -> Sequence[Run]:
    """The same kernels; who was timed alone since has its time of a run of several."""
    sizes = Counter(run.record.run for run in runs)
    if 1 not in sizes.values():
        return runs
    where = problems.together(runs[0])[1:]
    known = [r for r in earlier if sizes[r.record.run] and problems.together(r)[1:] == where]
    common = {_kernel(run): run for run in sorted(known, key=lambda run: run.record.time)}
    if not common:
        return runs
    placed = [
        common[_kernel(run)]
        if sizes[run.record.run] == 1 and _kernel(run) in common
        and common[_kernel(run)].stale == run.stale
        else run
        for run in runs
    ]  # fmt: skip
    return fastest(placed)


def _newest_together(runs: Sequence[Run]) -> Sequence[Run]:
    """The newest run that timed several and what came after it, fastest first; else all."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.record.run and run.stale == runs[0].stale:
            groups.setdefault(run.record.run, []).append(run)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return runs
    first = _kernel(runs[0])[0]
    with_first = [group for group in several if first in (_kernel(run)[0] for run in group)]
    newest = max(with_first or several, key=lambda group: group[0].record.time)
    since = min(run.record.time for run in newest)
    return [run for run in runs if run.record.time >= since and run.stale == runs[0].stale]


def outdated(runs: Sequence[Run], chosen: Run) -> Run | None:
    """The fastest stale run where it beats the chosen one, a fresh one, beyond noise."""
    stale = (run for run in runs if run.stale and not chosen.stale)
    first = min(stale, key=lambda run: run.total.median_us, default=None)
    if first is None or first.total.median_us > chosen.total.median_us or alike(first, chosen):
        return None
    return first


def _kernel(run: Run) -> tuple[tuple[str, str], int]:
    """Language and design, and number of the version."""
    kernel = run.record.kernel
    return (kernel.language, kernel.design), number_of(kernel.version)


def alike(one: Run, other: Run) -> bool:
    """Whether two runs took as long."""
    return level(one.total.median_us, other.total.median_us)


def level(one: float, other: float) -> bool:
    """Whether two times are as fast as each other; see ``mla_var3.evidence.compare``."""
    return word(one, other) == "as fast"


def fastest(runs: Iterable[Run]) -> list[Run]:
    """Timed runs, fastest first; of runs of one version, mode and path the order is that of files.

    Fresh records come before stale ones.
    """
    timed = (run for run in runs if run.is_timed)
    return sorted(timed, key=lambda run: (run.stale, run.total.median_us, run.name))


def with_all_work(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs that are spared nothing, as by a prefix that sequences share; all if none is."""
    return [
        run for run in runs if not workloads()[run.record.kernel.layer].lighter(run.record.problem)
    ] or runs


def worst(run: Run, metric: str) -> float | None:
    """The largest value of a metric over the stages of a run; None where none states it."""
    found = [r.value for r in metrics.readings_of(run.record, metrics.metric(metric))]
    return max((float(value) for value in found if not isinstance(value, str)), default=None)


Word = Literal["start", "not measured", "negative result", "mixed", "faster", "slower", "as fast"]


@dataclass(frozen=True)
class Step:
    """One problem at which a run timed a version and the one before.

    Attributes:
        run: The version's run.
        at: What tells the problem from the others.
        compared: Both records.
        stale: Whether the sources of one of the two have changed since.
    """

    run: Run
    at: str
    compared: Comparison
    stale: bool

    @property
    def gain(self) -> float:
        """Time before over time after."""
        return self.compared.gain

    @property
    def word(self) -> evidence.compare.Word:
        """Direction of the change in time."""
        return self.compared.word


@dataclass(frozen=True)
class Verdict:
    """What became of a version.

    Attributes:
        before: The version before; None for the first.
        negative: Whether its entry is marked as a failure.
        steps: All problems compared, in order.
        timed: Whether any run timed the version, be it beside none before it.
    """

    before: Version | None
    negative: bool
    steps: tuple[Step, ...]
    timed: bool = False

    @cached_property
    def word(self) -> Word:
        """The verdict in a word or two."""
        if self.before is None:
            return "start"
        if self.negative:
            return "negative result"
        if not self.steps:
            return "not measured"
        return self.versus.word

    @cached_property
    def versus(self) -> Versus:
        """The version against the one before, over all problems."""
        return Versus(tuple(step.compared for step in self.steps))

    @cached_property
    def extremes(self) -> tuple[Step, Step]:
        """The step that gained most and the one that gained least."""
        ordered = sorted(self.steps, key=lambda step: step.gain)
        return ordered[-1], ordered[0]

    @property
    def words(self) -> set[Literal["faster", "slower"]]:
        """Directions of all problems whose time changed."""
        return self.versus.directions

    @property
    def changed(self) -> int:
        """At how many problems it is faster or slower."""
        return sum(step.word != "as fast" for step in self.steps)

    @property
    def largest(self) -> Step | None:
        """The step that tells most: the largest change in the direction of the verdict."""
        if not self.steps:
            return None
        most, least = self.extremes
        if self.word == "negative result":
            return least
        return most if most.gain * least.gain >= 1 else least


def nearest(site: Site, version: Version) -> Verdict:
    """The verdict against the version before, else the nearest earlier one of a common run."""
    own = site.designs()[version.design_key]
    earlier = own[: own.index(version)][::-1]
    first = of(site, version, next(iter(earlier), None))
    others = (of(site, version, before) for before in earlier[1:])
    return first if first.steps else next((found for found in others if found.steps), first)


def of(site: Site, version: Version, before: Version | None) -> Verdict:
    """The verdict on a version, from records and its devlog entry."""
    devlog = site.catalogue.devlogs.get(version.design_key)
    entries = {entry.version: entry for entry in devlog.entries} if devlog else {}
    entry = entries.get(version.version)
    found = _pairs(site, before, version) if before else []
    varying = problems.varying_shared([new.record for _, new in found])
    ordered = sorted(found, key=lambda pair: problems.problem_of(pair[1].record).order)
    steps = tuple(_step(old, new, varying) for old, new in ordered)
    timed = bool(site.timed_of(version))
    return Verdict(before, bool(entry and entry.negative), steps, timed)


def _step(old: Run, new: Run, varying: list[str]) -> Step:
    at = problems.sizes(new.record, varying) or str(problems.problem_of(new.record))
    return Step(new, at, Comparison(old.record, new.record), old.stale or new.stale)


def _pairs(site: Site, before: Version, after: Version) -> list[tuple[Run, Run]]:
    """Where one run timed both at the same problem, each with its best n: the newest such run."""
    old, new = site.timed_of(before), site.timed_of(after)
    found = versus((run.record for run in old), (run.record for run in new), _problem)
    runs = {id(run.record): run for run in (*old, *new)}
    return [(runs[id(pair.before)], runs[id(pair.after)]) for pair in found.pairs]


def _problem(record: Record) -> Hashable:
    """Runs by what times must share to compare; a version may take a problem in several ways."""
    return record.target, record.mode, problems.problem_of(record)
