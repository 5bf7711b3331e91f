"""The one rule by which pages, skills and the advisor name a kernel for a problem.

Times of different runs do not compare. Where a run timed kernels beside the library that all are
compared with, the run in which they did best against it decides; else ``compare.best`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from generators.model import compare, problems
from generators.model.columns import PEERS
from generators.model.compare import Best
from generators.model.run import Run
from generators.model.site import Site
from mla_var3.evidence.compare import word
from mla_var3.workloads import workloads

#: Our fastest kernel of a run, and the library's of the same run.
Pair = tuple[Run, Run]


def chosen(site: Site, runs: Sequence[Run]) -> Best:
    """What to use of timed runs of one problem: the best of all there, if it is among them.

    Args:
        site: All inputs; times that were measured again since count too.
        runs: The newest time of each version that may be chosen, fastest first, at least one.
    """
    kernels = {kernel_of(run) for run in runs}
    there = compare.with_all_work(site.timed_at.get(problems.together(runs[0])[1:], runs))
    if len(there) > len(runs):
        first = _chosen(site, compare.fastest(there))
        if kernel_of(first.run) in kernels:
            rival = first.rival if first.rival and kernel_of(first.rival) in kernels else None
            return replace(first, rival=rival, outdated=compare.outdated(runs, first.run))
    return _chosen(site, runs)


def _chosen(site: Site, runs: Sequence[Run]) -> Best:
    first = compare.best(runs, site.earlier)
    pair = _beside(site, runs)
    if pair is None or pair[0].stale > first.run.stale:
        return first
    kernels = {kernel_of(run) for run in runs}
    same = each_version(
        run for run in site.companions[problems.together(pair[0])] if kernel_of(run) in kernels
    )
    return compare.best(compare.fastest([*same, *(run for run in runs if run.stale)]))


def _beside(site: Site, runs: Sequence[Run]) -> Pair | None:
    """The pair that decides among these versions; None where no run timed one and the library."""
    kernel, where = runs[0].record.kernel, problems.together(runs[0])[1:]
    workload = workloads().get(kernel.layer)
    peer = next(iter(workload.peers), None) if workload else None
    if peer is None:
        return None
    suits, kernels = alike(site, kernel.layer), {kernel_of(run) for run in runs}
    return pair_of(
        pairs(contest, peer, lambda run: kernel_of(run) in kernels and suits(run))
        for contest in site.contests.get(where, [])
    )


def alike(site: Site, layer: str) -> Callable[[Run], bool]:
    """Whether a run did all that the kernel of a workload's first library does."""
    peer = next(iter(workloads()[layer].peers), None)
    libraries = site.designs().get(peer or "")
    covers = libraries[0].plan_class().covers if libraries else None
    lighter = workloads()[layer].lighter

    def does(run: Run) -> bool:
        version = site.version_of(run)
        return (
            not lighter(run.record.problem)
            and version is not None
            and version.plan_class().covers == covers
        )

    return does


def pairs(contest: Sequence[Run], peer: str, suits: Callable[[Run], bool]) -> Pair | None:
    """Our fastest that suits and the library's, of runs whose times compare."""
    ours = [run for run in contest if run.record.kernel.language != PEERS and suits(run)]
    theirs = [run for run in contest if run.record.kernel.design == peer]
    if not ours or not theirs:
        return None
    return min(ours, key=_standing), min(theirs, key=_standing)


def pair_of(found: Iterable[Pair | None]) -> Pair | None:
    """Of several runs the newest in which ours does as well as in any, by today's code if it can.

    Runs differ by clock and temperature, which a ratio of two times of one run does not show.
    """
    known = [pair for pair in found if pair is not None]
    fresh = [pair for pair in known if not (pair[0].stale or pair[1].stale)] or known
    if not fresh:
        return None
    least = min(map(_share, fresh))
    near = [pair for pair in fresh if word(least, _share(pair)) == "as fast"]
    return max(near, key=lambda pair: pair[0].record.time)


def each_version(runs: Iterable[Run]) -> list[Run]:
    """The fastest of each version, fastest first."""
    kept: dict[tuple[str, ...], Run] = {}
    for run in compare.fastest(runs):
        kept.setdefault(kernel_of(run), run)
    return list(kept.values())


def _standing(run: Run) -> tuple[bool, float]:
    """By what a kernel of a run is chosen: today's code, then the shorter time."""
    return run.stale, run.total.median_us


def _share(pair: Pair) -> float:
    """Our time over the library's."""
    mine, theirs = pair
    return mine.total.median_us / theirs.total.median_us


def kernel_of(run: Run) -> tuple[str, ...]:
    """Language, design and version of a run."""
    kernel = run.record.kernel
    return kernel.language, kernel.design, kernel.version
