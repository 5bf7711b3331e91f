"""Says of a record what ran, where, when and how, and the command that makes it anew."""

from __future__ import annotations

from collections.abc import Mapping

from generators.model import problems, targets
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.proofs import checked
from generators.write import figures
from generators.write.text import cell, us
from mla_var3.app.options import to_argv
from mla_var3.errors import HyperMlaError
from mla_var3.evidence import Mode, Passed, Record
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version
from mla_var3.workloads import workloads

#: What a mode did, by its key.
MODES: Mapping[Mode, str] = {
    "disabled": "run once to check its output, not timed",
    "static": "compiled without a GPU",
    "event": "timed with CUDA events",
    "annotation": "timed by nsight-python",
    "ncu": "counted by Nsight Compute",
    "nsys": "traced by Nsight Systems or CUPTI",
}


def facts(run: Run) -> dict[str, str]:
    """What is said of a record, by heading; empty where it does not say."""
    record, outcome, work = run.record, run.outcome, run.work
    return {
        "What": cell(f"{figures.layer_title(record.kernel.layer)}, "
                     f"{problems.problem_text(record)}"),
        "Where": cell(_where(record)),
        "When": cell(_when(run)),
        "How": cell(_how(record.mode, outcome)),
        "Correctness": cell(_correctness(run)),
        "Energy": cell(energy(outcome)),
        "Least work": cell(f"{work.flops / 1e9:.4g} GFLOP, {work.bytes / 1e6:.4g} MB, by "
                           "the cost model") if work else "",
        "Toolchain": cell(", ".join(f"{k} {v}" for k, v in record.toolchain.items())),
    }  # fmt: skip


def _where(record: Record) -> str:
    found = record.device
    if found is None:
        return targets.target_name(record.target)
    clocks = {"SM": found.sm_clock_mhz, "memory": found.memory_clock_mhz}
    told = [f"{name} at {clock:g} MHz" for name, clock in clocks.items() if clock]
    after = f"right after the work {' and '.join(told)}" if told else ""
    parts = [f"{found.name} ({found.arch})", f"driver {found.driver}", after]
    return ", ".join(filter(None, parts))


def _when(run: Run) -> str:
    record = run.record
    parts = [f"{record.time:%Y-%m-%d %H:%M} UTC", f"run {record.run}" if record.run else ""]
    if record.git is not None:
        changed = {True: " with changes", False: "", None: ""}[record.git.dirty]
        parts.append(f"commit {record.git.commit[:12]}{changed}")
    parts.append("older sources than today's" if run.stale else "from today's sources")
    return ", ".join(filter(None, parts))


def _how(mode: Mode, outcome: Passed | None) -> str:
    protocol, total = (outcome.protocol, outcome.total) if outcome else (None, None)
    parts = [f"mode {mode}, {MODES[mode]}"]
    if protocol is not None:
        parts += [
            f"{protocol.bench_runs} timed runs after {protocol.warmup_runs} untimed ones",
            "L2 flushed before each" if protocol.l2_flush else "L2 left as it was",
            "each the replay of a CUDA graph" if protocol.graph_replay else "each a launch",
            f"in {protocol.rounds} rounds" if protocol.rounds else "",
        ]
    if total is not None:
        parts.append(f"from {us(total.min_us)} to {us(total.max_us)}")
    return ", ".join(filter(None, parts))


def _correctness(run: Run) -> str:
    found = checked(run)
    if found is None:
        return "not checked in this run"
    worst = found.max_relative_error
    error = "not finite" if worst is None else f"{worst:.1e}"
    said = f"{found.status}, relative error {error} (allowed {found.tolerance:.0e})"
    count = f"{len(found.cases)} problem{'s' if len(found.cases) > 1 else ''}"
    return f"{said} against {found.against}, {count}" + (
        f": {found.message}" if found.message else ""
    )


def energy(outcome: Passed | None) -> str:
    """What a launch draws, and at which clock; empty where nobody measured it."""
    drawn = outcome.energy if outcome else None
    if drawn is None:
        return ""
    clock = f" with SM at {drawn.sm_clock_mhz:,.0f} MHz" if drawn.sm_clock_mhz else ""
    held = f", clocks held down by {' and '.join(drawn.throttle)}" if drawn.throttle else ""
    return (
        f"{drawn.joules:.3g} J per launch and {drawn.watts:.0f} W, back to back at "
        f"{us(drawn.launch_us)}{clock}{held}"
    )


def again(site: Site, run: Run, link: Link) -> str:
    """The command that makes such a record anew, and what a time of its own is worth."""
    version = site.version_of(run)
    flags = _flags(version, run)
    if version is None or flags is None:
        return ""
    said = [flag for flag in flags if not flag.endswith("=None")]  # Nothing is the default.
    asked = " ".join([*said, f"--prof_type={run.record.mode}"])
    alone = f", a time and no comparison ({rules(link)})" if run.is_timed else ""
    return f"`nox -s profile -- {version.key} {asked}`{alone}"


def _flags(version: Version | None, run: Run) -> list[str] | None:
    """Flags that ask a version for a record's problem; None where its plan has other fields."""
    try:
        return to_argv(version.plan_of(run.record.problem)) if version is not None else None
    except HyperMlaError:
        return None


def beside(site: Site, run: Run) -> str:
    """The command that times a record's problem for all versions of its design in one run.

    Empty where the problem says more than ``bench`` asks for.
    """
    version = site.version_of(run)
    if version is None or not run.is_timed:
        return ""
    workload, problem = workloads()[version.layer], run.record.problem
    asked = {field.name for field in workload.problem.option_fields()}
    if any(problem.get(name) for name in workload.compared if name not in asked):
        return ""
    flags = _flags(version, run)
    if flags is None:
        return ""
    named = {flag: flag.lstrip("-").removeprefix("no_").partition("=")[0] for flag in flags}
    shared = " ".join(flag for flag, name in named.items() if name in asked)
    return f"`nox -s bench -- {shared} --designs={version.design_key}`"


def rules(link: Link) -> str:
    """Leads to what must hold before two times are compared."""
    return f"[how to compare]({link('CONTRIBUTING.md#add-a-measurement')})"
