"""Selects the one run that a column of a ladder shows, and the one that its chart shows.

Times compare within one run only, so what a run did not time stands apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from generators.model import problems
from generators.model.run import Run
from generators.model.site import Site
from generators.model.sweep import Setting
from mla_var3.languages import languages
from mla_var3.runtime.registry import Version
from mla_var3.workloads import workloads

#: Language of designs whose kernel is somebody's library.
PEERS = "library"
#: So many values of the sweep in one run make a chart of that run.
_SPANS = 3


@dataclass(frozen=True)
class Column:
    """What one run timed at one value of the sweep.

    Attributes:
        name: The run.
        time: When it began.
        runs: Record of each version that was in it, the fastest of several.
        beside: Whether the library that all compare with was in it.
    """

    name: str
    time: datetime
    runs: Mapping[Version, Run]
    beside: bool = False

    @property
    def day(self) -> str:
        """When, as pages say it."""
        return f"{self.time:%Y-%m-%d}"

    @property
    def rank(self) -> tuple[int, bool, int, datetime]:
        """More versions come first, then more of today's sources, then the newer run.

        Versions beside the library count twice: what they are worth shows only there.
        """
        fresh = sum(not run.stale for run in self.runs.values())
        return len(self.runs) * (1 + self.beside), self.beside, fresh, self.time


def first_peer(site: Site, layer: str) -> tuple[list[Version], str]:
    """Versions of the library that all of a workload compare with, and its name."""
    workload = workloads().get(layer)
    for design, name in workload.peers.items() if workload else ():
        if versions := site.designs().get(design):
            return versions, name
    return [], ""


def columns(site: Site, versions: Iterable[Version], where: Setting) -> dict[float, Column]:
    """At each value of the sweep the run that timed most of the versions; see ``Column.rank``."""
    found: dict[float, Column] = {}
    for (value, _), column in _all(site, versions, where).items():
        if value not in found or column.rank > found[value].rank:
            found[value] = column
    return dict(sorted(found.items()))


def charted(site: Site, versions: Sequence[Version], where: Setting) -> dict[float, Column]:
    """Columns of one run, where one spans the sweep; else each of its own, as in ``columns``."""
    spans: dict[str, dict[float, Column]] = {}
    for (value, name), column in _all(site, versions, where).items():
        spans.setdefault(name, {})[value] = column
    best = max(spans.values(), key=_marks, default={})
    each = columns(site, versions, where)
    enough = len(best) >= min(_SPANS, len(each))
    return dict(sorted(best.items())) if enough and len(best) > 1 else each


def _marks(span: Mapping[float, Column]) -> tuple[int, datetime]:
    return (
        sum(len(column.runs) for column in span.values()),
        max(column.time for column in span.values()),
    )


def _all(
    site: Site, versions: Iterable[Version], where: Setting
) -> dict[tuple[float, str], Column]:
    """Every run at every value."""
    at = {problem: value for value, problem in where.problems.items()}
    found: dict[tuple[float, str], dict[Version, Run]] = {}
    for version in versions:
        for run in timed(site, version, where):
            value = at.get(problems.problem_of(run.record))
            if value is not None:
                runs = found.setdefault((value, run.record.run or run.name), {})
                known = runs.get(version)
                if known is None or run.total.median_us < known.total.median_us:
                    runs[version] = run
    peers = set(first_peer(site, where.layer)[0])
    return {
        key: Column(
            key[1], min(run.record.time for run in runs.values()), runs, not peers.isdisjoint(runs)
        )
        for key, runs in found.items()
    }


def timed(site: Site, version: Version, where: Setting) -> list[Run]:
    """Runs of a version that were timed on the device of a setting."""
    return [
        run
        for run in site.timed_of(version)
        if run.record.target == where.target and run.record.mode == "event"
    ]


def elsewhere(
    site: Site, version: Version, where: Setting, shown: Mapping[float, Column]
) -> dict[float, Run]:
    """The newest run of a version at each shown value whose column lacks it."""
    found: dict[float, Run] = {}
    for run in sorted(
        timed(site, version, where), key=lambda run: (not run.stale, run.record.time)
    ):
        for value, column in shown.items():
            same = problems.problem_of(run.record) == where.problems[value]
            if same and version not in column.runs:
                found[value] = run
    return dict(sorted(found.items()))


def design_title(version: Version) -> str:
    """A design as people call it: a library's kernel by the library's name."""
    return known_as(version.layer, version.design, version.design_key)


def known_as(layer: str, design: str, typed: str) -> str:
    """The library whose kernel a design is; what commands call it where it is none."""
    found = workloads().get(layer)
    return found.peers.get(design, typed) if found else typed


def language_title(language: str) -> str:
    """A language in prose."""
    found = languages().get(language)
    return found.title if found else language
