"""Makes the ladder table of a design's versions: times, share of a peer's speed, verdicts.

A ladder has one setting: the device and sizes at which most versions were timed while one axis of
the workload, the sweep, varies.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from generators.draw import charts
from generators.model import compare, sweep
from generators.model.run import Run
from generators.model.site import Site
from generators.write import figures, verdicts
from generators.write.source import repo_name
from generators.write.text import cell, code, docstring, fold, sections, table
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime import costs
from mla_var3.runtime.registry import Version
from mla_var3.workloads import workloads

#: Language of designs whose kernel is somebody's library.
PEERS = "library"
#: Heading of the verdicts; they rest on more problems than the columns show.
VERDICT = "Against the version before, over all problems"


# -- the table -------------------------------------------------------------------------------------


def rows_of(designs: Sequence[list[Version]]) -> list[tuple[Version, Version | None]]:
    """Versions with the one before each, peers last."""
    ordered = sorted(designs, key=lambda versions: versions[0].language == PEERS)
    return [pair for versions in ordered for pair in zip(versions, [None, *versions], strict=False)]


def ladder_table(
    site: Site,
    designs: Sequence[list[Version]],
    where: sweep.Setting,
    name: Callable[[Version], str],
) -> str:
    """One row per step.

    Args:
        site: What generators read.
        designs: Versions of each design.
        where: The setting.
        name: A version as the first column has it, linked.
    """
    columns, found = where.named(), rows_of(designs)
    timed = {version.key: sweep.times(site, version, where) for version, _ in found}
    peers = [version for version, _ in found if version.language == PEERS]
    head = [
        "Version", "Idea", *(_heading(where, value) for value in columns),
        "Of the best peer", f"Of the bound, {_at(where, columns[-1])}", VERDICT,
    ]  # fmt: skip
    return table(
        head,
        [
            [
                name(version),
                idea(version),
                *(_time(timed[version.key].get(value)) for value in columns),
                _share(timed, version, peers, where),
                _of_bound(timed[version.key].get(columns[-1])),
                verdicts.badge(compare.of(site, version, before)),
            ]
            for version, before in found
        ],
        right=[_heading(where, value) for value in columns],
    )


#: A library after which designs of ours are named too.
NAMESAKE = "FlashMLA"


def idea(version: Version) -> str:
    """What a version shows; its code stays code, and a namesake says that it is ours."""
    pieces = re.split(r"(`[^`]+`)", docstring(version.path))
    said = " ".join(
        code(piece.strip("`")) if piece.startswith("`") else cell(piece) for piece in pieces
    ).strip()
    said = re.sub(r" (?=[.,:;])", "", said)
    ours = version.language != PEERS and said.startswith(NAMESAKE)
    return f"Our {said}" if ours else said


def _at(where: sweep.Setting, value: float) -> str:
    return f"{where.axis}={value:g}"


def _heading(where: sweep.Setting, value: float) -> str:
    regime = where.problems[value].regime
    return f"{_at(where, value)}, {regime}" if regime else _at(where, value)


def _time(run: Run | None) -> str:
    if run is None:
        return "not measured"
    return figures.duration(run.total) + (" (stale)" if run.stale else "")


def _of_bound(run: Run | None) -> str:
    share = costs.fraction(run.record) if run else None
    return verdicts.bar(share) if share is not None else ""


def _share(
    timed: dict[str, dict[float, Run]], version: Version, peers: list[Version], where: sweep.Setting
) -> str:
    """Time of the best peer that does the same over a version's, at the last common run."""
    covers = version.plan_class().covers
    alike = [timed[peer.key] for peer in peers if peer.plan_class().covers == covers]
    for value in reversed(where.named()):
        run = timed[version.key].get(value)
        others = [runs[value] for runs in alike if value in runs]
        same = [o for o in others if run and run.record.run and o.record.run == run.record.run]
        if run and same:
            share = min(o.total.median_us for o in same) / run.total.median_us
            return f"{verdicts.bar(share)} {_at(where, value)}"
    return ""


def _every_step(designs: Sequence[list[Version]], link: Link) -> str:
    """Every version as a link, a line per design."""
    lines = []
    for versions in designs:
        home = versions[0].path.parents[1]
        steps = " ".join(f"[{v.version}]({link(repo_name(v.path))})" for v in versions)
        lines.append(f"- [{cell(versions[0].design_key)}]({link(repo_name(home))}) {steps}")
    return '<div class="steps" markdown="1">\n\n' + "\n".join(lines) + "\n\n</div>"


# -- the chart -------------------------------------------------------------------------------------


def chart(
    site: Site, designs: Sequence[list[Version]], where: sweep.Setting, *, title: str, every: bool
) -> str:
    """Time over the sweep: all versions and the bound, drawn for wide and for narrow screens.

    Args:
        site: What generators read.
        designs: Versions of each design.
        where: The setting.
        title: What the figure shows.
        every: Whether each version has its label; else one of each design.
    """
    lines: list[charts.Line] = []
    least: dict[float, float] = {}
    lighter = workloads()[where.layer].lighter
    drawn = [
        {version: sweep.times(site, version, where) for version in versions} for versions in designs
    ]
    spared = [_spared(found, lighter) for found in drawn]
    alone = all(spared)
    for color, (found, less) in enumerate(zip(drawn, spared, strict=True)):
        if less and not alone:  # A bound that others cannot reach is none of theirs.
            continue
        found = {version: runs for version, runs in found.items() if runs}
        for runs in found.values():
            for value, run in runs.items():
                work = costs.bound(run.record)
                if work is not None:
                    least[value] = min(least.get(value, work.time_us), work.time_us)
        # Of a design the version with most times, which its line shows best, then the fastest.
        lead = max(found, key=lambda v: (len(found[v]), -_typical(found[v])), default=None)
        lines += [
            charts.Line(
                version.key if not every else version.version,
                tuple((value, run.total.median_us) for value, run in sorted(runs.items())),
                color,
                leads=version is lead,
                labelled=every or version is lead,
            )
            for version, runs in found.items()
        ]
    if len(where.problems) < 2 or not lines:
        return ""
    bound = tuple(sorted(least.items()))
    drawn_lines = charts.told_apart(lines, every)
    drawing = charts.Times(title, where.axis, where.meaning, drawn_lines, bound)
    return charts.figure(drawing)


def _spared(
    found: dict[Version, dict[float, Run]], lighter: Callable[[Mapping[str, Any]], bool]
) -> bool:
    """Whether problems of a design have less work than others of the same sizes."""
    return any(
        version.plan_class().smaller or lighter(run.record.problem)
        for version, runs in found.items()
        for run in runs.values()
    )


def _typical(runs: dict[float, Run]) -> float:
    """Geometric mean of the times, so that no end of the sweep decides alone."""
    return statistics.geometric_mean(run.total.median_us for run in runs.values())


def section(
    site: Site,
    designs: Sequence[list[Version]],
    link: Link,
    *,
    title: str,
    every: bool = False,
    folded: bool = False,
) -> str:
    """Chart and ladder of some designs of one workload; empty where nothing was timed.

    Args:
        site: What generators read.
        designs: Versions of each design.
        link: Addresses as seen from the page.
        title: What the chart shows.
        every: Whether the designs are one, whose versions need no other name.
        folded: Whether the table waits to be opened.
    """
    runs = [run for versions in designs for version in versions for run in site.runs_of(version)]
    where = sweep.setting(designs[0][0].layer, runs)
    if where is None:
        return ""

    def name(version: Version) -> str:
        text = version.version if every else version.key
        return f"[{cell(text)}]({link(repo_name(version.path))})"

    rows = ladder_table(site, designs, where, name)
    steps = sum(map(len, designs))
    if folded:
        opened = fold("The ladder", f"all {steps} steps: idea, times, verdict", rows)
        rows = sections(opened, _every_step(designs, link))
    return sections(
        chart(site, designs, where, title=title, every=every),
        f"At {cell(where.conditions)}. One row per step, with its times at up to {sweep.NAMED} "
        "problems; its verdict compares with the version before, within one run, over all problems "
        "measured. The bound is what no kernel that does this work can beat; a kernel that is "
        "spared some of it, by a prefix that sequences share or a smaller cache, is in the table "
        "only.",
        rows,
    )
