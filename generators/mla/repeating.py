"""Says how to repeat the time that most pages quote: commit, commands, and what is to come out."""

from __future__ import annotations

from generators.mla import conditions, counted, decode
from generators.mla.same_work import PAGE, time_of
from generators.model.choice import kernel_of
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write import figures
from generators.write.text import cell, fence, sections, table
from mla_var3 import devices
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.library_kernel import LibraryPlan

#: The card of the figures in FlashMLA's README.
_README_CARD = "nvidia-h800-sxm"
#: Where that README is quoted.
_QUOTED = "knowledge/workloads/mla.md#what-flashmla-publishes"


def text(site: Site, link: Link) -> str:
    """Commands, then a table of both sides; empty where no run timed both."""
    found = decode.best_known(site)
    if found is None:
        return "No run timed a kernel here beside a library."
    mine, theirs = min(found[1], key=lambda pair: counted.from_usual(pair[0]))
    version, plan = site.version_of(theirs), None
    if version is not None:
        plan = version.plan_class()
    needs = plan.needs if plan is not None and issubclass(plan, LibraryPlan) else None
    commit = mine.record.git.commit[:12] if mine.record.git else "COMMIT"
    install = conditions.install(site.root, needs) if needs else "the library"
    problem = _sizes(mine)
    lines = (
        f"git checkout {commit}    # of a clone; `main` has the newest version",
        "python -m pip install nox",
        install,
        f"{decode.command(found[1]).strip('`')}",
    )
    return sections(
        fence("\n".join(f"$ {line}" for line in lines), "console"),
        f"Of the 60 problems look at **{problem}, pages of {PAGE} at random, bf16**:",
        table(
            ["", run_version(site, mine, link), f"FlashMLA{_stated(theirs)}, same run",
             f"[FlashMLA's README]({link(_QUOTED)})"],
            [
                ["card", _card(mine), f"the same; {_made(theirs)}", "H800 SXM5, CUDA 12.8"],
                ["expect", *(f"**{time_of(x, link)}**, {_rates(x)}" for x in (mine, theirs)),
                 "no shape beside its numbers"],
                ["most GB/s of any problem", *_most(site, link, "bytes"),
                 f"3000 GB/s, {_share(3000, 'gbps')} of that card's"],
                ["most TFLOP/s of any problem", *_most(site, link, "flops"),
                 f"660 TFLOPS, {_share(660, 'tflops')} of that card's"],
                ["spread of the runs", *(_spread(x) for x in (mine, theirs)), "not stated"],
                ["back to back, no flush", *(_unflushed(x) for x in (mine, theirs)),
                 "not stated which"],
            ],
        ),
        f"**Right:** largest error {_error(mine)}; FlashMLA {_error(theirs)}.",
    )  # fmt: skip


def outliers(site: Site, _link: Link) -> str:
    """Why single runs are long, by all problems of the run that is to be repeated."""
    pair = counted.usual(site)
    return _outliers(site, *pair) if pair else ""


def _sizes(run: Run) -> str:
    """Sizes of a problem: ``b=32, h=128, s=1, t=4,096``."""
    return ", ".join(f"{name}={int(run.record.problem[name]):,}" for name in "bhst")  # type: ignore[arg-type]


def _card(run: Run) -> str:
    device = run.record.device
    if device is None:
        return "not recorded"
    driver = f", driver {device.driver}" if device.driver else ""
    return f"{cell(device.name + driver)}; {_made(run)}"


def _made(run: Run) -> str:
    """With which versions of tools."""
    return cell(", ".join(f"{name} {version}" for name, version in run.record.toolchain.items()))


def _share(value: float, rate: str) -> str:
    """A figure of the README as a share of the published rate of the card that it names."""
    sheet = devices.load(_README_CARD).ceilings("bfloat16", published=True)
    return f"{value / getattr(sheet, rate):.0%}"


def _most(site: Site, link: Link, work: str) -> list[str]:
    """The highest rate of each side over pages, one query token, with its problem."""
    pairs = [pair for found in decode.by_version(site).values() for pair in found]
    told = []
    for side in zip(*pairs, strict=True):
        known = [run for run in side if run.work is not None]
        best = max(known, key=lambda run: getattr(run.work, work) / run.total.median_us)
        told.append(
            f"{figures.record_link(best, link, figures.rate(best, work))} at {_sizes(best)}"
        )
    return told


def _stated(run: Run) -> str:
    known = run.record.toolchain.get("flash_mla")
    return f" {cell(known)}" if known else ""


def _rates(run: Run) -> str:
    return f"{figures.rate(run, 'flops')}, {figures.rate(run, 'bytes')}"


def _spread(run: Run) -> str:
    """The shortest and the longest run, and how many."""
    total, device = run.total, run.record.device
    clock = device.sm_clock_mhz if device else None
    at = f", SM clock {clock:,.0f} MHz after it" if clock else ""
    return f"{total.min_us:.1f} to {total.max_us:.1f} us in {total.samples} runs{at}"


def _outliers(site: Site, mine: Run, theirs: Run) -> str:
    """How far the shortest and the longest runs lie from the medians at all problems of the run."""
    ours, other = (
        [one.total for one in (*site.runs, *site.earlier)
         if one.is_timed and one.record.run == run.record.run
         and kernel_of(one) == kernel_of(run)]
        for run in (mine, theirs)
    )  # fmt: skip
    least, most = (
        [f"{pick(getattr(one, name) / one.median_us for one in side):.2f}"
         for side in (ours, other) for pick in (min, max)]
        for name in ("min_us", "max_us")
    )  # fmt: skip
    return (
        f"**Why is the longest run so far off?** Single long runs, which a median does not follow: "
        f"at the {len(ours)} problems of that run the shortest takes {least[0]} to {least[1]} of "
        f"the median (FlashMLA {least[2]} to {least[3]}), the longest {most[0]} to {most[1]} "
        f"({most[2]} to {most[3]}). What made them long was not recorded: a record keeps the "
        "median, the shortest and the longest, no quartiles."
    )


def _unflushed(run: Run) -> str:
    """Time back to back, and what held the clock."""
    energy = run.outcome.energy if run.outcome else None
    if energy is None:
        return "not recorded"
    held = f", held by {cell(', '.join(energy.throttle))}" if energy.throttle else ""
    return f"{energy.launch_us:.1f} us at {energy.watts:.0f} W{held}"


def _error(run: Run) -> str:
    """What the outputs were compared with, in the timed run."""
    found = run.outcome.correctness if run.outcome else None
    if found is None:
        return "not recorded"
    worst = max(case.max_relative_error or 0.0 for case in found.cases)
    return f"{worst:g} of {found.tolerance:g}, against {cell(found.against)}"
