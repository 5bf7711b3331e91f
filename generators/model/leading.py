"""Finds the version to start from: the winner at most timed problems of a regime, by device.

The agent skills name it, per language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from generators.model import choice, compare, problems
from generators.model.run import Run
from generators.model.site import Site
from mla_var3.errors import KnowledgeError
from mla_var3.runtime.registry import Version
from mla_var3.versions import number_of
from mla_var3.workloads import workloads

#: Workload, language, device, regime, and what the times cover.
Field = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Leader:
    """A version that was the fastest of its language at most problems of a regime.

    Attributes:
        version: The version.
        device: Key of the device.
        regime: The regime; empty where the workload has none.
        won: Problems at which it was the one to use.
        problems: Problems of the regime at which several versions were timed.
        run: One of its timed runs there.
    """

    version: Version
    device: str
    regime: str
    won: int
    problems: int
    run: Run

    @property
    def covers(self) -> str:
        """What its time covers."""
        return self.version.plan_class().covers


def leaders(site: Site, language: str | None = None, layer: str | None = None) -> list[Leader]:
    """The leader of each workload, language, device, regime and cover, most problems first.

    Args:
        site: What generators read.
        language: Of this language only.
        layer: Of this workload only.
    """
    return [
        one
        for one in site.once(_leaders)
        if language in (None, one.version.language) and layer in (None, one.version.layer)
    ]


def _leaders(site: Site) -> list[Leader]:
    contests: dict[Field, list[Run]] = {}
    for problem, runs in problems.by_problem(_timed(site)).items():
        for field, group in _by_field(site, runs, problem.regime).items():
            if len({_name(run) for run in group}) > 1:
                contests.setdefault(field, []).append(
                    choice.chosen(site, compare.fastest(group)).run
                )
    found = (_leader(site, field, runs) for field, runs in contests.items())
    return sorted(found, key=lambda one: (-one.problems, one.version.key, one.regime))


def leader(site: Site, language: str) -> Version:
    """The version of a language that won at most problems, of the workload with most of them.

    Raises:
        KnowledgeError: No record compares two versions of the language.
    """
    found = leaders(site, language)
    if not found:
        raise KnowledgeError(f"no run timed two versions in {language}")
    mine = [one for one in found if one.version.layer == found[0].version.layer]
    return max(mine, key=lambda one: one.won).version


def _timed(site: Site) -> list[Run]:
    """Runs timed by events whose problem spares them nothing that others have to do."""
    return [
        run
        for run in site.runs
        if run.is_timed
        and run.record.mode == "event"
        and site.version_of(run) is not None
        and not workloads()[run.record.kernel.layer].lighter(run.record.problem)
    ]


def _by_field(site: Site, runs: Iterable[Run], regime: str) -> dict[Field, list[Run]]:
    grouped: dict[Field, list[Run]] = {}
    for run in runs:
        kernel, version = run.record.kernel, site.version_of(run)
        assert version is not None  # Others were left out.
        covers = version.plan_class().covers
        field = (kernel.layer, kernel.language, run.record.target, regime, covers)
        grouped.setdefault(field, []).append(run)
    return grouped


def _name(run: Run) -> tuple[str, str]:
    return run.record.kernel.design, run.record.kernel.version


def _leader(site: Site, field: Field, won: list[Run]) -> Leader:
    """Of the winners of each problem the one that won most; of equals the newest version."""
    _, _, device, regime, _ = field
    counts = Counter(map(_name, won))
    most = max(counts, key=lambda name: (counts[name], number_of(name[1]), name))
    run = next(run for run in won if _name(run) == most)
    version = site.version_of(run)
    assert version is not None  # Others were left out.
    return Leader(version, device, regime, counts[most], len(won), run)
