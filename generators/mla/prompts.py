"""Says how fast prefill is: rates as shares of a published peak, and sparse prefill by problem."""

from __future__ import annotations

from generators.mla.same_work import time_of
from generators.model import problems
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write import figures
from generators.write.text import cell, table
from mla_var3 import devices
from mla_var3.evidence.compare import median_us, said
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import PREFILL_FROM, WORKLOAD

#: The design of sparse prefill, and the library's that is timed beside it.
SPARSE, PEER = "sparse_prefill", "deepseek_sparse_prefill"


def rates(site: Site, link: Link) -> str:
    """The highest rate per device and design, with its share of the published peak."""
    best: dict[tuple[str, str], Run] = {}
    for run in (*site.runs, *site.earlier):
        if _is_prefill(run) and site.version_of(run) is not None:
            key = run.record.target, f"{run.record.kernel.language}/{run.record.kernel.design}"
            if key not in best or _per_us(run) > _per_us(best[key]):
                best[key] = run
    rows = [
        [
            _card(run, link),
            run_version(site, run, link),
            cell(problems.problem_text(run.record)),
            time_of(run, link),
            figures.rate(run, "flops"),
            f"{_per_us(run) / 1e6 / _peak(run):.0%}",
        ]
        for run in sorted(best.values(), key=_per_us, reverse=True)
    ]
    if not rows:
        return "No kernel was timed at prefill here."
    peaks = {_name(run): _peak(run) for run in best.values()}
    told = {name: f"{peak:,g} TFLOP/s on {name}" for name, peak in peaks.items()}
    return (
        table(["Card", "Kernel", "Problem", "Time", "Rate", "Of the published peak"], rows)
        + f"\nThe highest rate of each design at {PREFILL_FROM} query tokens and more; FLOPs are "
        "the cost model's, the peak is the published one of bf16 without sparsity: "
        f"{', '.join(told.values())}. "
        f"**Prefill was timed on {', '.join(told)} and on no other card.**"
    )


def sparse(site: Site, link: Link) -> str:
    """A row per problem of sparse prefill: our time, the library's of the same run."""
    rows = []
    for run in site.runs:
        if run.is_timed and run.record.kernel.design == SPARSE and run.record.mode == "event":
            theirs = [
                other
                for other in site.companions.get(problems.together(run), [])
                if other.record.kernel.design == PEER
            ]
            if theirs:
                rows.append((run, theirs[0]))
    if not rows:
        return "Sparse prefill was not timed beside a library here."
    rows.sort(key=lambda pair: -pair[0].total.median_us)
    shown = [
        [
            str(mine.record.problem["s"]), str(mine.record.problem["h"]),
            f"{mine.record.problem['t']:,}", str(mine.record.problem["topk"]),
            time_of(mine, link), time_of(other, link),
            said(median_us(other.record), median_us(mine.record)),
            figures.rate(mine, "flops"),
        ]
        for mine, other in rows
    ]  # fmt: skip
    first = rows[0][0]
    return (
        table(
            ["Query tokens", "Heads", "Rows of the cache", "Per list", "Time", "FlashMLA",
             "It is", "Rate"],
            shown,
        )
        + f"\n{run_version(site, first, link)} on {_name(first)}, bf16 rows of 576 "
        "values, after a flush of L2; both of one run, each time leads to its record."
    )  # fmt: skip


def _is_prefill(run: Run) -> bool:
    return (
        run.is_timed
        and run.work is not None
        and run.record.device is not None
        and run.record.kernel.layer == WORKLOAD.key
        and run.record.problem.get("dtype") == "bf16"
        and run.record.kernel.language != "library"
        and int(run.record.problem["s"]) >= PREFILL_FROM  # type: ignore[arg-type]
    )


def _per_us(run: Run) -> float:
    work = run.work
    assert work is not None
    return work.flops / run.total.median_us


def _name(run: Run) -> str:
    return cell(devices.find(run.record.target).name.removeprefix("NVIDIA "))


def _card(run: Run, link: Link) -> str:
    return f"[{_name(run)}]({link(f'knowledge/devices/{run.record.target}.toml')})"


def _peak(run: Run) -> float:
    return devices.find(run.record.target).ceilings("bfloat16", published=True).tflops
