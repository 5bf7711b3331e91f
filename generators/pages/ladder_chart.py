"""Makes the chart of a ladder: times of one run over the sweep, beside the bound."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from generators.draw import charts
from generators.model import columns, sweep
from generators.model.columns import Column
from generators.model.run import Run
from generators.model.site import Site
from generators.write.text import sections
from mla_var3.runtime import costs
from mla_var3.runtime.registry import Version
from mla_var3.workloads import workloads


def chart(
    site: Site, designs: Sequence[list[Version]], where: sweep.Setting, *, title: str, every: bool
) -> str:
    """Time over the sweep: versions of one run and the bound, for wide and for narrow screens.

    Args:
        site: What generators read.
        designs: Versions of each design.
        where: The setting.
        title: What the figure shows.
        every: Whether each version has its label; else one of each design.
    """
    peers, called = columns.first_peer(site, where.layer)
    with_peer = designs if peers in list(designs) or not peers else [*designs, peers]
    everyone = [version for versions in with_peer for version in versions]
    shown = columns.charted(site, everyone, where)
    drawn = [_times(versions, shown) for versions in with_peer]
    lighter = workloads()[where.layer].lighter
    spared = [_spared(found, lighter) for found in drawn]
    alone = all(less for less, versions in zip(spared, with_peer, strict=True)
                if versions is not peers)  # fmt: skip
    lines: list[charts.Line] = []
    least: dict[float, float] = {}
    for color, (versions, found, less) in enumerate(zip(with_peer, drawn, spared, strict=True)):
        is_peer = versions is peers
        if less and not alone:  # A bound that others cannot reach is none of theirs.
            continue
        if not (is_peer and alone):
            _take_least(least, found)
        # Of a design the version with most times, which its line shows best, then the fastest.
        lead = max(found, key=lambda v: (len(found[v]), -_typical(found[v])), default=None)
        lines += [
            charts.Line(
                called if is_peer else version.version if every else version.key,
                tuple((value, run.total.median_us) for value, run in sorted(runs.items())),
                color,
                leads=version is lead and not (is_peer and every),
                labelled=every or version is lead,
                first=is_peer,
            )
            for version, runs in found.items()
            if not is_peer or version is lead
        ]
    if len(shown) < 2 or all(line.first for line in lines):
        return ""
    drawn_lines = charts.told_apart(lines, every)
    said = f"{title}, {_of_runs(shown)}"
    bound = tuple(sorted(least.items()))
    drawing = charts.Times(said, where.axis, where.meaning, drawn_lines, bound)
    left = [version for versions in designs for version in versions
            if every and not any(version in column.runs for column in shown.values())]  # fmt: skip
    note = f"Not in this chart, since other runs timed them: {_named(left)}." if left else ""
    return sections(charts.figure(drawing), note)


def _named(versions: Sequence[Version]) -> str:
    return ", ".join(version.version for version in versions)


def _of_runs(shown: Mapping[float, Column]) -> str:
    """Of which runs a chart is."""
    names = {column.name for column in shown.values()}
    days = sorted({column.day for column in shown.values()})
    if len(names) == 1:
        return f"one run of {days[0]}"
    return "each size of one run of its own: compare marks above each other"


def _times(
    versions: Iterable[Version], shown: Mapping[float, Column]
) -> dict[Version, dict[float, Run]]:
    """Runs of each version by the value of the sweep; of those alone that have any."""
    found = {
        version: {value: column.runs[version] for value, column in shown.items()
                  if version in column.runs}
        for version in versions
    }  # fmt: skip
    return {version: runs for version, runs in found.items() if runs}


def _take_least(least: dict[float, float], found: Mapping[Version, Mapping[float, Run]]) -> None:
    for runs in found.values():
        for value, run in runs.items():
            if (work := costs.bound(run.record)) is not None:
                least[value] = min(least.get(value, work.time_us), work.time_us)


def _spared(
    found: Mapping[Version, Mapping[float, Run]], lighter: Callable[[Mapping[str, Any]], bool]
) -> bool:
    """Whether problems of a design have less work than others of the same sizes."""
    return any(
        version.plan_class().smaller or lighter(run.record.problem)
        for version, runs in found.items()
        for run in runs.values()
    )


def _typical(runs: Mapping[float, Run]) -> float:
    """Geometric mean of the times, so that no end of the sweep decides alone."""
    return statistics.geometric_mean(run.total.median_us for run in runs.values())
