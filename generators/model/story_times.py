"""Selects times for a story's steps: one run's beside the peer's, and others that stand apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from generators.model.run import Run
from generators.model.site import Site
from generators.model.stories import Story
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version


@dataclass(frozen=True)
class Together:
    """Times that were taken in one run.

    Attributes:
        run: Its name.
        peer: The peer's record; None where it was not in the run.
        runs: Per step its record.
        beside: Records of further versions that the text names.
    """

    run: str
    peer: Run | None
    runs: Mapping[str, Run]
    beside: Mapping[str, Run] = field(default_factory=dict)

    @property
    def time(self) -> datetime:
        """When it was."""
        return next(iter(self.runs.values())).record.time

    @property
    def day(self) -> date:
        """On which day."""
        return self.time.date()

    def us(self, key: str) -> float:
        """Median time of a step's version."""
        return self.run_of(key).total.median_us

    def run_of(self, key: str) -> Run:
        """Record of a step, or of a version that the text names."""
        return self.runs[key] if key in self.runs else self.beside[key]

    def share(self, key: str) -> float | None:
        """Its share of the peer's time, where both were in the run."""
        return self.us(key) / self.peer.total.median_us if self.peer else None


@dataclass(frozen=True)
class Times:
    """Times of a story's steps.

    Attributes:
        main: The run that has the peer and most steps, the newest of several; None without one.
        apart: The run with most of the other steps.
    """

    main: Together | None
    apart: Together | None

    def of(self, key: str) -> Together | None:
        """The run that a step's time is of: the main one where it has the version."""
        for group in (self.main, self.apart):
            if group and (key in group.runs or key in group.beside):
                return group
        return None

    @property
    def groups(self) -> list[Together]:
        """Those that there are, the one that stands apart first: its steps come first."""
        return [group for group in (self.apart, self.main) if group]


def versions(story: Story) -> dict[str, Version]:
    """The version of each step, by the step's key."""
    known, wanted = _known(), {s.key: (s.design or story.design, s.version) for s in story.steps}
    return {key: known[name] for key, name in wanted.items() if name in known}


def find(story: Story, version: str) -> Version | None:
    """A version of a story's design, be it a step or not."""
    return _known().get((story.design, version))


def _known() -> dict[tuple[str, str], Version]:
    """All versions by each name of their design, and their own."""
    return {
        (name, v.version): v for v in registry.versions() for name in (v.design_key, v.qualified)
    }


def times(site: Site, story: Story) -> Times:
    """The runs that tell most of a story."""
    known = versions(story)
    groups = _groups(site, story, known)
    main = _most((g for g in groups if g.peer or not story.peer), set(known))
    rest = set(known) - set(main.runs if main else ())
    apart = _most((g for g in groups if g is not main), rest) if rest else None
    return Times(main, apart)


def _most(groups: Iterable[Together], wanted: set[str]) -> Together | None:
    """The run with most of the versions, the newest of several."""
    best = max(groups, key=lambda g: (len(wanted & set(g.runs)), g.time), default=None)
    return best if best and wanted & set(best.runs) else None


def _groups(site: Site, story: Story, wanted: Mapping[str, Version]) -> list[Together]:
    found: dict[str, dict[str, Run]] = {}
    for key, version in wanted.items():
        for run in filter(_at(story), site.timed_of(version)):
            found.setdefault(str(run.record.run), {}).setdefault(key, run)
    peers, beside = _peers(site, story), _beside(site, story)
    return [
        Together(name, peers.get(name), runs, beside.get(name, {})) for name, runs in found.items()
    ]


def _beside(site: Site, story: Story) -> dict[str, dict[str, Run]]:
    """Per run the records of the versions that a story names beside its steps."""
    found: dict[str, dict[str, Run]] = {}
    for version in site.versions:
        if story.design in (version.design_key, version.qualified) and (
            version.version in story.beside
        ):
            for run in filter(_at(story), site.timed_of(version)):
                found.setdefault(str(run.record.run), {})[version.version] = run
    return found


def _peers(site: Site, story: Story) -> dict[str, Run]:
    """The peer's record in each run that has it."""
    return {
        str(run.record.run): run
        for version in site.versions
        if story.peer and version.design == story.peer
        for run in filter(_at(story), site.timed_of(version))
    }


def _at(story: Story) -> Callable[[Run], bool]:
    def fits(run: Run) -> bool:
        record = run.record
        return (
            record.mode == "event"
            and record.run is not None
            and all(record.problem.get(name) == value for name, value in story.problem.items())
        )

    return fits
