"""Makes the section that compares our fastest latent kernels with other libraries' kernels.

Only runs that timed both count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from generators.model import problems, targets
from generators.model.columns import PEERS as LIBRARY
from generators.model.problems import together
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write import figures, verdicts
from generators.write.text import cell, sections, table
from mla_var3.evidence.compare import NOISE, Comparison, Versus, Word, said
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads import workloads
from mla_var3.workloads.mla import WORKLOAD

TITLE = "Against FlashMLA and other libraries"
#: Libraries by their design, the one that all are compared with first.
PEERS: Mapping[str, str] = WORKLOAD.peers


def section(site: Site, link: Link) -> str:
    """Every problem at which a kernel here and a library's ran in one run; empty without any."""
    lighter = workloads()[WORKLOAD.key].lighter
    full = _rows(site, _alike(site), link)
    shared = _rows(site, lambda run: lighter(run.record.problem), link, rivals=1)
    if not full:
        return ""
    return sections(
        f"## {TITLE}",
        verdict(site),
        "Each row is one problem. One run timed our kernel and the library in turns; times are its "
        "medians. Our kernel is the fastest one of that run that does the same work as the "
        "library. Every problem that both ran in one run is here, also where we are slower. As "
        f"fast means that the two medians differ by less than {NOISE:.1%}.",
        full,
        "In the next rows all sequences share a prefix, and our kernel reads keys and values of "
        "that prefix decompressed beforehand. FlashMLA reads the whole cache of each sequence:"
        if shared
        else "",
        shared,
    )


def lead(site: Site, address: str) -> str:
    """The verdict, and where every problem behind it stands."""
    said = verdict(site)
    return f"{said} [{TITLE}]({address}): every problem measured in a common run." if said else ""


def verdict(site: Site) -> str:
    """Where the fastest of ours is ahead of the first library, ties with it and is behind."""
    peer, suits = next(iter(PEERS)), _alike(site)
    beside = [_fastest_of(runs, suits, [peer]) for runs in _groups(site)]
    pairs = [(mine, peers[peer]) for mine, peers in beside if mine and peers]
    if not pairs:
        return ""
    found = Versus(tuple(Comparison(theirs.record, mine.record) for mine, theirs in pairs))
    words: tuple[Word, ...] = ("faster", "as fast", "slower")
    counts = ", ".join(f"{word} at {found.count(word)}" for word in words)
    middle, most, least = (said(gain, 1.0) for gain in (found.median, found.best.gain,
                                                        found.worst.gain))  # fmt: skip
    best, worst = (cell(str(problems.problem_of(pair.after))) for pair in (found.best, found.worst))
    spread = (
        f" The median over all is {middle}, the worst {least} ({worst}), the best {most} ({best})."
    )
    return (
        f"**At {len(pairs)} problems one run timed both {PEERS[peer]} and kernels of ours. Our "
        f"fastest kernel is {counts}.**{spread if len(pairs) > 1 else ''} Which of our versions is "
        f"the fastest depends on the problem. {_conditions([mine for mine, _ in pairs])}"
    )


def _conditions(ours: Sequence[Run]) -> str:
    """What a ratio against the first library does not say: how each side reads the cache."""
    paged = [run.record.problem for run in ours if run.record.problem.get("page")]
    uneven = sum(bool(problem.get("lengths")) for problem in paged)
    apart = (
        "FlashMLA reads its cache by pages and by a length per sequence; our kernel reads one "
        "contiguous cache of equal lengths."
    )
    if not paged:
        return f"In these runs {apart}"
    both = f"At {len(paged)} of the problems both read the same pages, {uneven} of them with "
    both += "lengths that differ."
    return both if len(paged) == len(ours) else f"{both} At the others {apart}"


def _alike(site: Site) -> Callable[[Run], bool]:
    """Whether a run did all that the libraries' kernels do."""
    lighter, covers = workloads()[WORKLOAD.key].lighter, _covers(site)
    return lambda run: not lighter(run.record.problem) and _does(site, run, covers)


def _groups(site: Site) -> list[list[Run]]:
    """Timed runs of the workload, by what was timed together."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in site.runs:
        if run.is_timed and run.record.kernel.layer == WORKLOAD.key and run.record.run:
            groups.setdefault(together(run), []).append(run)
    return sorted(groups.values(), key=lambda runs: problems.problem_of(runs[0].record).order)


def _fastest_of(
    runs: Iterable[Run], suits: Callable[[Run], bool], names: list[str]
) -> tuple[Run | None, dict[str, Run]]:
    """Fastest kernel of ours in one run, and the libraries' times of that run."""
    runs = list(runs)
    ours = [run for run in runs if run.record.kernel.language != LIBRARY and suits(run)]
    peers = {run.record.kernel.design: run for run in runs if run.record.kernel.design in names}
    return min(ours, key=lambda run: run.total.median_us, default=None), peers


def _rows(site: Site, suits: Callable[[Run], bool], link: Link, rivals: int | None = None) -> str:
    names = list(PEERS)[:rivals]
    found = [row for runs in _groups(site) if (row := _row(site, runs, suits, names, link))]
    shown = [i for i in range(len(names)) if any(row[i + 2] for row in found)]
    rows = [[*row[:2], *(row[i + 2] for i in shown)] for row in found]
    head = ["Problem", "Ours", *(f"Against {PEERS[names[i]]}" for i in shown)]
    return table(head, rows)


def _row(
    site: Site, runs: Iterable[Run], suits: Callable[[Run], bool], names: list[str], link: Link
) -> list[str]:
    mine, peers = _fastest_of(runs, suits, names)
    if mine is None or not peers:
        return []
    where = f"{targets.target_name(mine.record.target)}, {problems.problem_of(mine.record)}"
    own = figures.record_link(mine, link, figures.duration(mine.total))
    return [
        cell(where),
        f"{run_version(site, mine, link)}: {own}",
        *(_against(mine, peers[name], link) if name in peers else "" for name in names),
    ]


def _against(mine: Run, peer: Run, link: Link) -> str:
    said = verdicts.against(mine, peer, PEERS[peer.record.kernel.design])
    return figures.record_link(peer, link, said)


def _covers(site: Site) -> str | None:
    """What the libraries' kernels do, attention up to the latent output; None without one."""
    peer = site.designs().get(next(iter(PEERS)))
    return peer[0].plan_class().covers if peer else None


def _does(site: Site, run: Run, covers: str | None) -> bool:
    """Whether a run did that."""
    version = site.version_of(run)
    return version is not None and version.plan_class().covers == covers
