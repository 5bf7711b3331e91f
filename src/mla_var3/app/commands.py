"""Commands over many versions: check, compare, bench."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import torch
import tyro
from rich.console import Console
from rich.table import Table

from mla_var3 import arguments, front, records
from mla_var3.app.options import tyro_field
from mla_var3.arguments import named
from mla_var3.errors import HyperMlaError, RecordError, UsageError
from mla_var3.runtime import registry
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.plan import KernelPlan, option
from mla_var3.runtime.registry import Version
from mla_var3.workloads.mla import AttentionPlan

EXIT_FAILED = 1
PROG = "python -m mla_var3.app.commands"


@dataclass(frozen=True)
class CheckOutcome:
    """Result of checking one version on one problem; sent between processes."""

    version: str
    slug: str
    error: float
    explanation: str


def _end_in_silence() -> None:
    """Let an interrupt end this worker; the parent says what there is to say."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _check_one(design: str, version: str, index: int) -> CheckOutcome:
    torch.set_num_threads(1)
    found = registry.find(design, version)
    plan = found.plan_class()().check_plans()[index]
    result = check_plan(plan, "cuda" if torch.cuda.is_available() else "cpu")
    return CheckOutcome(found.key, plan.slug(), result.max_relative_error, result.explain())


def check_versions(
    versions: Sequence[Version], console: Console, workers: int | None = None
) -> list[CheckOutcome]:
    """Check every small problem of each version, side by side on the processor's cores.

    Args:
        versions: What to check.
        console: Told each result as it comes.
        workers: Processes; the number of cores by default.

    Returns:
        Outcomes in order of versions and problems.

    Raises:
        HyperMlaError: A process was killed.
    """
    jobs = [
        (v.design, v.version, i)
        for v in versions
        for i in range(len(v.plan_class()().check_plans()))
    ]
    outcomes: list[CheckOutcome] = []
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(
        min(workers or os.cpu_count() or 1, len(jobs)),
        mp_context=context,
        initializer=_end_in_silence,
    )
    try:
        # Workers inherit the mask: an interrupt while they import would print a traceback each.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            futures = [pool.submit(_check_one, *job) for job in jobs]
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for number, future in enumerate(futures, 1):
            outcome = future.result()
            outcomes.append(outcome)
            verdict = "[green]ok[/green]" if not outcome.explanation else "[red]WRONG[/red]"
            console.print(
                f"[{number:>3}/{len(jobs)}] {outcome.version:<24} {outcome.slug:<52} "
                f"error {outcome.error:.1e} {verdict}"
            )
            if outcome.explanation:
                console.print(f"          {outcome.explanation}", markup=False)
    except concurrent.futures.BrokenExecutor as error:
        raise HyperMlaError("a checking process was killed, perhaps for lack of memory") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return outcomes


def check(
    design: Annotated[tyro.conf.Positional[str | None], named("[DESIGN]")] = None,
    version: Annotated[tyro.conf.Positional[str | None], named("[VERSION]")] = None,
) -> int:
    """Check a version, all versions of a design, or everything, on small problems.

    Args:
        design: Design to check; all by default.
        version: Version to check; all of the design by default.

    Returns:
        0 when all are right, 1 when any is wrong.
    """
    console = Console(soft_wrap=True, highlight=False)
    outcomes = check_versions(registry.select(design, version), console)
    wrong = [o for o in outcomes if o.explanation]
    checked = len({o.version for o in outcomes})
    console.print(
        f"{checked} version(s), {len(outcomes)} problems: "
        + ("all right" if not wrong else f"{len(wrong)} wrong")
    )
    return EXIT_FAILED if wrong else 0


# -- compare -------------------------------------------------------------------------------------


def _rows(record: records.Record) -> dict[str, str | float]:
    """Figures of a record by label, in display order."""
    outcome = record.outcome
    if isinstance(outcome, records.Failed):
        return {"status": f"failed: {outcome.error}"}
    rows: dict[str, str | float] = {
        "GFLOP (model)": outcome.flops / 1e9,
        "MB (model)": outcome.bytes / 1e6,
    }
    if outcome.correctness is not None:
        if (worst := outcome.correctness.max_relative_error) is not None:
            rows["relative error"] = worst
        for label, field in (("loaded", "bytes_loaded"), ("stored", "bytes_stored")):
            counted = [getattr(c, field) for c in outcome.correctness.cases]
            if all(value is not None for value in counted):
                rows[f"kB {label} (interpreted)"] = sum(counted) / 1e3
    if outcome.total is not None:
        rows["median us"] = outcome.total.median_us
    for prediction in outcome.predictions:
        rows[f"floor us, {prediction.device}"] = prediction.time_us
    for stage in outcome.stages:
        if stage.duration is not None and len(outcome.stages) > 1:
            rows[f"{stage.name}: median us"] = stage.duration.median_us
        if stage.static is not None:
            rows[f"{stage.name}: registers"] = stage.static["registers"]
            rows[f"{stage.name}: stack bytes"] = stage.static["stack_bytes"]
            rows[f"{stage.name}: shared bytes"] = stage.static["shared_bytes"]
            rows[f"{stage.name}: MMA"] = stage.static["mma_path"]
    return rows


def comparison_tables(design: str, first: str, second: str) -> list[Table]:
    """A table for each target, mode and problem that both versions have a record of.

    Raises:
        RecordError: There is none; says what to run.
    """
    pair = [registry.find(design, v) for v in (first, second)]
    by_key = [
        {(r.target, r.mode, r.slug): r for r in records.find(design=v.design, version=v.version)}
        for v in pair
    ]
    common = [key for key in by_key[0] if key in by_key[1]]
    if not common:
        lacking = [v for v, found in zip(pair, by_key, strict=True) if not found] or pair
        commands = " and ".join(f"nox -s profile -- {v.key}" for v in lacking)
        raise RecordError(
            f"{pair[0].key} and {pair[1].version} share no record to compare; run {commands}"
        )
    tables = []
    for key in common:
        left, right = by_key[0][key], by_key[1][key]
        stale = [r.kernel.version for r in (left, right) if records.is_stale(r)]
        note = f" (stale: {', '.join(stale)})" if stale else ""
        table = Table(title=f"{design}: {' · '.join(key)}{note}", title_justify="left")
        for column in ("", left.kernel.version, right.kernel.version, "ratio"):
            table.add_column(column, justify="left" if column == "" else "right")
        one_run = left.mode == "static" or (left.run is not None and left.run == right.run)
        rows = (_rows(left), _rows(right))
        for label in dict.fromkeys([*rows[0], *rows[1]]):
            a, b = rows[0].get(label, ""), rows[1].get(label, "")
            table.add_row(label, _text(a), _text(b), _ratio(a, b, one_run or "us" not in label))
        tables.append(table)
    return tables


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4g}" if value % 1 else f"{value:.0f}"


def _ratio(a: str | float, b: str | float, comparable: bool) -> str:
    if isinstance(a, str) or isinstance(b, str) or not a or not b:
        return ""
    return f"{b / a:.3f}" if comparable else "other run"


def compare(
    design: Annotated[tyro.conf.Positional[str], named("DESIGN")],
    first: Annotated[tyro.conf.Positional[str], named("V1")],
    second: Annotated[tyro.conf.Positional[str], named("V2")],
) -> int:
    """Show two versions side by side, from their records; ratios are second over first.

    Args:
        design: The design.
        first: The version to compare from.
        second: The version to compare to.
    """
    console = Console(highlight=False)
    for table in comparison_tables(design, first, second):
        console.print(table)
    return 0


# -- bench ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What to run beside the problem itself."""

    designs: str | None = option(None, "designs, comma separated (default: all)")
    arch: str | None = option(
        None, "archs for static runs, comma separated (default: sm_90,sm_100,sm_120)"
    )
    bench_runs: int = option(50, "timed runs", minimum=1)
    no_autotune: bool = option(False, "use the default tilings")
    check: bool = option(True, "compare with the reference before timing")


def _bench_type() -> Any:
    types, hints = AttentionPlan.benchmark_kernel_argparse(), get_type_hints(BenchOptions)
    fields = [tyro_field(f, types[f.name]) for f in AttentionPlan.option_fields()]
    for f in dataclasses.fields(BenchOptions):
        # What is off has one form; --no_no_autotune would be another.
        off = [tyro.conf.FlagCreatePairsOff] if f.default is False else []
        fields.append(tyro_field(f, hints[f.name], *off))
    return dataclasses.make_dataclass("Bench", fields, frozen=True)


def bench_plans(options: Any) -> list[tuple[Version, KernelPlan]]:
    """Each version with its plan at the asked problem."""
    wanted = options.designs.split(",") if options.designs else list(registry.designs())
    problem = {f.name: getattr(options, f.name) for f in AttentionPlan.option_fields()}
    plans = []
    for design in wanted:
        for version in registry.select(design.strip()):
            plan = version.plan_class()(**problem)
            plan.validate()
            plans.append((version, plan))
    return plans


def bench(argv: Sequence[str]) -> int:
    """Run every version on one problem: times on a GPU, static facts elsewhere."""
    options = arguments.parse(_bench_type(), argv, f"{PROG} bench", bench.__doc__)
    if options.bench_runs < 1:
        raise UsageError(f"--bench_runs={options.bench_runs} is below 1")
    if options.arch is not None and torch.cuda.is_available():
        raise UsageError("--arch is for static runs; on a machine with a GPU bench times on it")
    from mla_var3.profiling import event, report, static_profile

    archs = static_profile.parse_archs(options.arch)
    console = Console(soft_wrap=True, highlight=False)
    rows: list[tuple[records.Record, Version]] = []
    plans = bench_plans(options)
    for number, (version, plan) in enumerate(plans, 1):
        console.print(f"[{number}/{len(plans)}] {version.key}", markup=False)
        if torch.cuda.is_available():
            result = event.event_profile_plan(
                plan, version=version, bench_runs=options.bench_runs, check=options.check,
                no_autotune=options.no_autotune,
            )  # fmt: skip
            rows.append((result.record, version))
        else:
            static = static_profile.static_profile_plan(plan, version=version, archs=archs)
            rows += [(record, version) for record in static.records]
    table = Table(title="bench")
    for column in ("version", "target", "problem", "median us", "floor us", "of floor", "compiler"):
        table.add_column(column, overflow="fold")
    failed = 0
    for record, version in rows:
        outcome = record.outcome
        if isinstance(outcome, records.Failed):
            failed += 1
            table.add_row(version.key, record.target, record.slug, "failed", "", "", outcome.error)
            continue
        compiled = "; ".join(
            f"{s.static['registers']}r {s.static['stack_bytes']}B {s.static['mma_path']}"
            for s in outcome.stages
            if s.static
        ) or "; ".join(report.tiling_text(s.tiling) for s in outcome.stages)
        device = report.main_device(record)
        floor = next((p for p in outcome.predictions if p.device == device), None)
        table.add_row(
            version.key,
            record.target,
            record.slug,
            f"{outcome.total.median_us:.1f}" if outcome.total else "",
            f"{floor.time_us:.1f}" if floor else "",
            f"{outcome.roofline_fraction:.1%}" if outcome.roofline_fraction else "",
            compiled,
        )
    Console(width=max(console.width, 140)).print(table)
    return EXIT_FAILED if failed else 0


COMMANDS: dict[str, Callable[..., int]] = {
    "check": check,
    "compare": compare,
    "bench": bench,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    command, rest, prog = arguments.choose(COMMANDS, sys.argv[1:] if argv is None else argv, PROG)
    # The flags of bench come from the fields of a plan, not from its signature.
    return bench(rest) if command is bench else arguments.parse(command, rest, prog) or 0


if __name__ == "__main__":
    front.run("mla_var3.app.commands:main")
