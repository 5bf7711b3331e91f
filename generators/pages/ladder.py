"""Makes the ladder table of a design's versions: times, share of a peer's speed, verdicts.

A ladder has one setting: the device and sizes at which most versions were timed while one axis of
the workload, the sweep, varies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from generators.model import columns, compare, problems, sweep
from generators.model.columns import PEERS, Column
from generators.model.run import Run
from generators.model.site import Site
from generators.pages import bars
from generators.pages.ladder_chart import chart
from generators.write import figures, verdicts
from generators.write.source import repo_name
from generators.write.text import cell, code, docstring, fold, sections, table, us
from mla_var3.evidence.compare import NOISE
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime import costs
from mla_var3.runtime.registry import Version
from mla_var3.workloads import workloads

#: Heading of the verdicts; they rest on more problems than the columns show.
VERDICT = "Against the version before, over all problems"
#: Heading of times that no column shows.
APART = "In other runs"
#: The table of more versions of one design waits to be opened: the bars above it say the times.
LONG = 10
#: Fewer versions make no staircase.
_STEPS = 3


# -- the table -------------------------------------------------------------------------------------


def rows_of(designs: Sequence[list[Version]]) -> list[Version]:
    """Versions, peers last."""
    ordered = sorted(designs, key=lambda versions: versions[0].language == PEERS)
    return [version for versions in ordered for version in versions]


def ladder_table(
    site: Site,
    designs: Sequence[list[Version]],
    where: sweep.Setting,
    name: Callable[[Version], str],
    link: Link,
    *,
    ideas: bool = True,
) -> str:
    """One row per step, then the library that all compare with, then the bound.

    Args:
        site: What generators read.
        designs: Versions of each design.
        where: The setting.
        name: A version as the first column has it, linked.
        link: Addresses as seen from the page.
        ideas: Whether a row says what its version shows.
    """
    shown, found = _columns(site, designs, where), rows_of(designs)
    timed = {version for version in found if site.timed_of(version)}
    values, peer = list(shown), _peer(site, designs, where)
    peers = [version for version in found if version.language == PEERS] + peer
    last = values[-1]
    head = [
        "Version", *["Idea"] * ideas, *(_heading(where, value) for value in values), APART,
        "Of the best peer", f"Of the bound, {_at(where, last)}", VERDICT,
    ]  # fmt: skip

    def row(version: Version, said: str, verdict: str) -> list[str]:
        apart = columns.elsewhere(site, version, where, shown)
        return [
            said,
            *[idea(version)] * ideas,
            *(_time(column.runs.get(version), version in timed) for column in shown.values()),
            "<br>".join(_apart(site, version, apart, where, link)),
            _share(shown, version, peers, where),
            _of_bound(shown[last].runs.get(version)),
            verdict,
        ]

    made = [
        row(version, name(version), verdicts.badge(compare.nearest(site, version)))
        for version in found
    ]
    made += [row(version, f"[{cell(_peer_name(version))}]({link(repo_name(version.path))})", "")
             for version in peer]  # fmt: skip
    made += _bounds(found, shown, ideas=ideas)
    return table(head, made, right=[_heading(where, value) for value in values])


def _bounds(
    own: Sequence[Version], shown: Mapping[float, Column], *, ideas: bool
) -> Iterator[list[str]]:
    """The bound of the versions' work, and of the library's where that is more."""
    mine = [
        _least(run for version, run in column.runs.items() if version in own)
        for column in shown.values()
    ]
    whole = [_least(column.runs.values()) for column in shown.values()]
    told = [("The bound", mine)] if any(mine) else []
    if any(one and more > one * (1 + NOISE) for one, more in zip(mine, whole, strict=True)):
        told = [("The bound, spared the shared work", mine), ("The bound of all the work", whole)]
    said = ["What no kernel that does this work can beat."] * ideas
    for name, bounds in told:
        yield [name, *said, *(us(one) if one else "" for one in bounds), "", "", "", ""]


def _columns(
    site: Site, designs: Sequence[list[Version]], where: sweep.Setting
) -> dict[float, Column]:
    """The run of each column: peers count as much as versions do."""
    peers, _ = columns.first_peer(site, where.layer)
    everyone = dict.fromkeys(v for versions in [*designs, peers] for v in versions)
    found = columns.columns(site, everyone, where)
    return {value: found[value] for value in where.named() if value in found}


def _peer(site: Site, designs: Sequence[list[Version]], where: sweep.Setting) -> list[Version]:
    """Versions of the first library with a row of their own, where the designs lack it."""
    peers, _ = columns.first_peer(site, where.layer)
    if peers in list(designs):
        return []
    shown = _columns(site, designs, where)
    beside = [v for v in peers if any(v in column.runs for column in shown.values())]
    apart = [v for v in peers if columns.elsewhere(site, v, where, shown)]
    return beside or apart[-1:]


def _peer_name(version: Version) -> str:
    named = workloads()[version.layer].peers
    return named.get(version.design, version.design)


def _apart(
    site: Site, version: Version, apart: Mapping[float, Run], where: sweep.Setting, link: Link
) -> Iterator[str]:
    """Times of a version that columns lack, each of another run, and how many other problems."""
    for value, run in apart.items():
        time = figures.record_link(run, link, figures.duration(run.total))
        yield f"{_at(where, value)}: {time}, run {cell((run.record.run or 'unnamed')[:4])}"
    known = set(where.problems.values())
    runs = columns.timed(site, version, where)
    others = {problems.problem_of(run.record) for run in runs} - known
    if others:
        many = f"{len(others)} other problems" if len(others) > 1 else "another problem"
        yield f"[{many}]({link(repo_name(version.path))})"


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


def _time(run: Run | None, timed: bool) -> str:
    """A time of a column's run; only what no run timed at all is not measured."""
    if run is None:
        return "" if timed else "not measured"
    return figures.duration(run.total) + (" (stale)" if run.stale else "")


def _least(runs: Iterable[Run]) -> float:
    """Bound of the whole work of a column; 0 where no run tells."""
    found = [costs.bound(run.record) for run in compare.with_all_work(list(runs))]
    return min((bound.time_us for bound in found if bound is not None), default=0.0)


def _of_bound(run: Run | None) -> str:
    share = costs.fraction(run.record) if run else None
    return verdicts.bar(share) if share is not None else ""


def _share(
    shown: Mapping[float, Column], version: Version, peers: list[Version], where: sweep.Setting
) -> str:
    """Time of the best peer that does the same over a version's, at the last common column."""
    covers = version.plan_class().covers
    alike = [peer for peer in peers if peer.plan_class().covers == covers]
    for value, column in reversed(list(shown.items())):
        run = column.runs.get(version)
        others = [column.runs[peer] for peer in alike if peer in column.runs]
        if run and others:
            share = min(o.total.median_us for o in others) / run.total.median_us
            return f"{verdicts.bar(share)} {_at(where, value)}"
    return ""


def _every_step(designs: Sequence[list[Version]], link: Link) -> str:
    """Every version as a link, a line per design."""
    lines = []
    for versions in designs:
        home = versions[0].path.parents[1]
        steps = " ".join(f"[{v.version}]({link(repo_name(v.path))})" for v in versions)
        title = cell(columns.design_title(versions[0]))
        lines.append(f"- [{title}]({link(repo_name(home))}) {steps}")
    return '<div class="steps" markdown="1">\n\n' + "\n".join(lines) + "\n\n</div>"


# -- bars ------------------------------------------------------------------------------------------


def staircase(site: Site, versions: list[Version], where: sweep.Setting) -> str:
    """All versions of a design in one run as bars; empty where fewer than three were in it."""
    shown = _columns(site, [versions], where)
    value = max(shown, key=lambda value: (len(shown[value].runs), -value))
    column = shown[value]
    own = {version: column.runs[version] for version in versions if version in column.runs}
    if len(own) < _STEPS:
        return ""
    best = min(own, key=lambda version: own[version].total.median_us)
    rows = [
        bars.Bar(version.version, run.total.median_us, "own" if version is best else "before")
        for version, run in own.items()
    ]
    rows += [
        bars.Bar(_peer_name(peer), column.runs[peer].total.median_us, "peer")
        for peer in _peer(site, [versions], where) if peer in column.runs
    ]  # fmt: skip
    if least := _least(own.values()):
        rows.append(bars.Bar("the bound", least, "bound"))
    missing = [version.version for version in versions if version not in own]
    note = f" Not in that run: {', '.join(missing)}." if missing else ""
    at = problems.problem_of(own[best].record)
    card = _card(site, where)
    return bars.drawn(f"On {card}, at {at}, one run of {column.day}.{note}", rows)


def _card(site: Site, where: sweep.Setting) -> str:
    """The device of a ladder, as people call it."""
    names = (device.name for device in site.devices if device.key == where.target)
    return cell(next(names, where.target))


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
        text = version.version
        if not every:
            text = f"{columns.design_title(version)} {text}"
        return f"[{cell(text)}]({link(repo_name(version.path))})"

    # The page of a design says below what each version shows.
    rows = ladder_table(site, designs, where, name, link, ideas=not every)
    kind = "ladder" if every else "ladder ladder--ideas"
    rows = f'<div class="{kind}" markdown="1">\n\n{rows}\n\n</div>'
    steps = sum(map(len, designs))
    if every and steps > LONG:
        rows = fold("The ladder as a table", f"all {steps} steps: times and verdicts", rows)
    if folded:
        opened = fold("The ladder", f"all {steps} steps: idea, times, verdict", rows)
        rows = sections(opened, _every_step(designs, link))
    return sections(
        staircase(site, designs[0], where) if every else "",
        f"On {_card(site, where)}, at {cell(where.conditions)}. One row per step. "
        f"{_each_run(site, designs, where)} The "
        "verdict compares with the version before, or the nearest that a common run timed, over "
        "all problems measured.",
        rows,
        _without_peer(site, designs, where) if every else "",
        chart(site, designs, where, title=title, every=every),
        "A kernel that is spared some of the work, by a prefix that sequences share or a smaller "
        "cache, is in the table only."
        if not every
        else "",
    )


def _without_peer(site: Site, designs: Sequence[list[Version]], where: sweep.Setting) -> str:
    """That the library all compare with has no row; empty where it has one."""
    peers, called = columns.first_peer(site, where.layer)
    if not peers or peers in list(designs) or _peer(site, designs, where):
        return ""
    return (
        f"{cell(called)} has no row: no record has it at these problems. Where it ran beside a "
        "version in a trial, the version's entry quotes both times."
    )


def _each_run(site: Site, designs: Sequence[list[Version]], where: sweep.Setting) -> str:
    """Which run each column is of."""
    shown = _columns(site, designs, where)
    said = ", ".join(f"{_at(where, value)} of {column.day}" for value, column in shown.items())
    stands = any(
        columns.elsewhere(site, version, where, shown)
        for version in rows_of(designs) + _peer(site, designs, where)
    )
    apart = (
        " Times of other runs stand apart, with the run's first letters: only times of one run "
        "compare, here and on pages that cite another pair."
    )
    return f"Each column is one run: {said}.{apart if stands else ''}"
