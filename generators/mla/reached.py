"""Says which share of memory bandwidth the best decode kernels reach, from records."""

from __future__ import annotations

from generators.mla.same_work import time_of
from generators.model import problems
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write import figures
from generators.write.text import cell, table
from mla_var3 import devices
from mla_var3.devices.ceilings import Ceilings
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import WORKLOAD


def text(site: Site, link: Link) -> str:
    """A row per card and number of heads: the highest rate of bytes, beside datasheet and copy."""
    best: dict[tuple[str, object], Run] = {}
    for run in (*site.runs, *site.earlier):
        if _is_decode(run) and site.version_of(run) is not None:
            latent = {"k", "n"} & run.record.problem.keys() == {"k"}
            key = run.record.target, run.record.problem["h"] if latent else "decompressed"
            if key not in best or per_us(run) > per_us(best[key]):
                best[key] = run
    if not best:
        return "No kernel was timed at decode here."
    ordered = sorted(best.values(), key=per_us, reverse=True)
    rows = [
        [
            cell(devices.find(run.record.target).name.removeprefix("NVIDIA ")),
            run_version(site, run, link),
            cell(problems.problem_text(run.record)),
            time_of(run, link),
            figures.rate(run, "bytes"),
            *(f"{per_us(run) / 1e3 / rate.gbps:.0%}" for rate in rates(run)),
        ]
        for run in ordered
    ]
    cards = {run.record.target: rates(run) for run in ordered}
    told = [
        f"{devices.find(target).name.removeprefix('NVIDIA ')}: {sheet.gbps:,.0f} GB/s on the "
        f"datasheet, {copy.gbps:,.0f} GB/s by a copy"
        for target, (sheet, copy) in cards.items()
    ]
    return (
        table(["Card", "Kernel", "Problem", "Time", "Least bytes over time", "Of the datasheet",
               "Of a copy"], rows)
        + f"\n{'; '.join(told)}. Decode of one query token in bf16 with a flush of L2 before each "
        "launch: with k the latent cache, a row per number of heads, and without it keys and "
        "values decompressed beforehand; each with the kernel and problem of the highest rate."
    )  # fmt: skip


def rates(run: Run) -> tuple[Ceilings, Ceilings]:
    """What the datasheet of a run's card states, and what was measured on it where it was."""
    card = devices.find(run.record.target)
    return card.ceilings("bfloat16", published=True), card.ceilings("bfloat16")


def per_us(run: Run) -> float:
    """Least bytes over the median time, in bytes per microsecond."""
    work = run.work
    assert work is not None
    return work.bytes / run.total.median_us


def _is_decode(run: Run) -> bool:
    record = run.record
    return (
        run.is_timed
        and run.work is not None
        and record.device is not None
        and record.kernel.layer == WORKLOAD.key
        and record.kernel.language != "library"
        and record.problem.get("dtype") == "bf16"
        and record.problem.get("s") == 1
        and not WORKLOAD.lighter(record.problem)
        and "topk" not in record.problem
        and int(record.problem["h"]).bit_count() == 1  # type: ignore[arg-type]
        and run.outcome is not None
        and run.outcome.protocol is not None
        and run.outcome.protocol.l2_flush
    )
