"""Works out what the pass that merges split keys costs, from records that time both passes."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from generators.model import problems
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write.text import cell, sections, table, us
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version
from mla_var3.workloads.mla import WORKLOAD

#: What designs call a second pass that only merges.
MERGES = ("merge", "reduce")
#: Mode whose times a page quotes, and rows that are shown at most.
_MODE, _SHOWN = "event", 8


def text(site: Site, link: Link) -> str:
    """How much longer the whole takes than its main pass, at the problems that one version has."""
    by_version: dict[Version, list[Run]] = {}
    for run in (*site.runs, *site.earlier):
        version = site.version_of(run)
        if version is not None and _splits(run):
            by_version.setdefault(version, []).append(run)
    if not by_version:
        return "No kernel with a merge of its own was timed here."
    most = max(by_version.values(), key=lambda runs: len(_by_problem(runs)))
    found = sorted(_by_problem(most), key=_share)
    shares = [_share(run) for run in found]
    step = max(1, -(-(len(found) - 1) // (_SHOWN - 1)))
    shown = [*found[:-1:step], found[-1]]
    rows = [_row(run, link) for run in shown]
    device = next(d for d in site.devices if d.key == found[0].record.target)
    return sections(
        f"**Between {shares[0]:.0%} and {shares[-1]:.0%} of the whole, {median(shares):.0%} in the "
        f"median**, with {run_version(site, found[0], link)} on an "
        f"{cell(device.name.removeprefix('NVIDIA '))} at {len(found)} problems, where the merge is "
        "a launch of its own. From the smallest share to the largest:",
        table(
            ["Problem", "Main pass", "Merge", "Both in a row", "More than the main pass"],
            rows,
            right=["Main pass", "Merge", "Both in a row", "More than the main pass"],
        ),
        "Each pass was timed alone, with its launch, L2 flushed before it; in a row the second "
        "begins while the first ends, so both take less than their sum. The share is what both "
        "take beyond the main pass.",
    )


def _splits(run: Run) -> bool:
    """Whether a run times a main pass and a merge."""
    record, outcome = run.record, run.outcome
    return (
        record.kernel.layer == WORKLOAD.key
        and record.mode == _MODE
        and outcome is not None
        and outcome.total is not None
        and len(outcome.stages) == 2
        and outcome.stages[1].name in MERGES
        and all(stage.duration is not None for stage in outcome.stages)
    )


def _by_problem(runs: Iterable[Run]) -> list[Run]:
    """One run per problem that people name by its sizes alone, the newest."""
    newest: dict[str, Run] = {}
    for run in runs:
        said = problems.problem_text(run.record)
        if said not in newest or run.record.time > newest[said].record.time:
            newest[said] = run
    return list(newest.values())


def _passes(run: Run) -> tuple[float, float]:
    assert run.outcome is not None
    main, merge = (stage.duration for stage in run.outcome.stages)
    assert main is not None
    assert merge is not None
    return main.median_us, merge.median_us


def _share(run: Run) -> float:
    """What both passes take beyond the main one, of the whole."""
    return max(0.0, 1 - _passes(run)[0] / run.total.median_us)


def _row(run: Run, link: Link) -> list[str]:
    main, merge = _passes(run)
    return [
        cell(problems.problem_text(run.record)),
        us(main),
        us(merge),
        f"[{us(run.total.median_us)}]({link(run.name)})",
        f"{us(max(0.0, run.total.median_us - main))}, {_share(run):.0%}",
    ]
