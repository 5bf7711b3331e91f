"""Command ``bench``: runs all versions of one workload on one problem, and prints one table.

``bench_set`` does so for each problem of a set, in interleaved rounds.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import tyro
from rich.console import Console
from rich.table import Table

from mla_var3 import arguments, evidence, knowledge, languages, workloads
from mla_var3.app import problem_sets, winner
from mla_var3.app.naming import value_of
from mla_var3.app.options import tyro_field
from mla_var3.errors import NotExecutableError, PlanError, ToolchainError, UsageError
from mla_var3.evidence import Passed, Record
from mla_var3.evidence.compare import said
from mla_var3.paths import kernels_dir, relative, write_atomic
from mla_var3.runtime import costs, registry
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version
from mla_var3.runtime.tiling import tiling_text
from mla_var3.workloads import Workload, option

EXIT_FAILED = 1
COLUMNS = (
    "version", "target", "problem", "median us", "against", "bound us", "x bound", "compiler",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What to run beside the problem itself."""

    workload: str | None = option(
        None, "workload whose designs to compare (default: that of --designs, else the largest)"
    )
    designs: str | None = option(None, "designs, comma separated (default: all of the workload)")
    arch: str | None = option(
        None, "archs for static runs, comma separated (default: those of the language)"
    )
    bench_runs: int = option(50, "timed runs", minimum=1)
    set: str | None = option(
        None, "a set of problems of the workload, instead of one: all in one process, on a GPU"
    )
    peers: bool = option(
        False, "beside libraries, all in interleaved rounds after a warm-up, with energy"
    )
    newest: bool = option(
        False, "of each design the newest version alone that its devlog does not call a failure"
    )
    no_autotune: bool = option(False, "use the default tilings")
    check: bool = option(True, "compare with the reference before timing")
    csv: Path | None = option(None, "write the table to this file")
    verbose: bool = option(False, "print problem, bound and tiling of every record, in order")


@dataclass(frozen=True)
class Row:
    """One record of the comparison, or why a version has none."""

    version: Version
    plan: KernelPlan
    record: Record | None
    absent: str = ""


def bench(argv: Sequence[str], prog: str, description: str | None = None) -> int:
    """Run every version of a workload on one problem: times on a GPU, else static facts."""
    versions = chosen(argv)
    workload = workloads.find(versions[0].layer)
    options = arguments.parse(flags_of(workload), argv, prog, description)
    run = Runner(options)
    if options.newest:
        versions = newest(versions)
    console = Console(soft_wrap=True, highlight=False)
    if options.set is not None:
        return bench_set(versions, workload, run, console)
    plans, refused = plans_of(versions, workload, options)
    rows = [*run.all(plans, console), *refused]
    if all(row.record is None for row in rows):
        raise ToolchainError(rows[0].absent)
    wide = Console(width=max(console.width, 140) if options.verbose else console.width)
    if options.verbose:
        wide.print(table(rows))
    else:
        console.print(winner.podium([(r.version.key, r.record) for r in rows]), markup=False)
        wide.print(winner.ranking([(r.version.key, r.record, r.absent) for r in rows]))
    for line in covered(rows):
        console.print(line, markup=False)
    made = [row.record for row in rows if row.record is not None]
    if options.csv is not None:
        write_atomic(options.csv, evidence.frame(made).to_csv(index=False))
        print(f"wrote {relative(options.csv)}")
    return EXIT_FAILED if any(isinstance(r.outcome, evidence.Failed) for r in made) else 0


def bench_set(
    versions: Sequence[Version], workload: Workload, run: Runner, console: Console
) -> int:
    """Run all problems of a set, each in interleaved rounds; 1 where a version failed."""
    options = run.options
    problems = problem_sets.problems(workload, options.set)
    if not (run.gpu and options.peers):
        raise UsageError("--set times versions beside libraries, which needs --peers and a GPU")
    ratios, failed = problem_sets.Ratios(), False
    for number, problem in enumerate(problems, 1):
        said = " ".join(f"{name}={value}" for name, value in problem.items() if value)
        console.print(f"[{number}/{len(problems)}] {said}", markup=False)
        rows = run.all(problem_sets.plans(versions, problem), console)
        ratios.add([(row.version, row.record) for row in rows])
        failed |= any(
            row.record and isinstance(row.record.outcome, evidence.Failed) for row in rows
        )
    ratios.print(console)
    return EXIT_FAILED if failed else 0


def chosen(argv: Sequence[str]) -> list[Version]:
    """The versions that a command line asks for, all of one workload.

    Raises:
        UnknownNameError: There is no such design or workload.
        UsageError: They are of two workloads.
    """
    designs, key = value_of("--designs", argv), value_of("--workload", argv)
    if key:
        workloads.find(key)
    if not designs:
        layer = key or Counter(v.layer for v in _bases()).most_common(1)[0][0]
        return [v for versions in registry.designs(layer).values() for v in versions]
    found = [v for name in designs.split(",") for v in registry.select(name.strip())]
    layers = list(dict.fromkeys([*([key] if key else ()), *(v.layer for v in found)]))
    if len(layers) > 1:
        raise UsageError(
            f"bench compares designs of one workload, and these are of {' and '.join(layers)}"
        )
    return found


def newest(versions: Sequence[Version]) -> list[Version]:
    """Of each design its newest version that its devlog does not mark as a failure."""
    catalogue = knowledge.load_all(kernels_dir().parent)  # A root for records alone has none.
    failed = {
        (design, entry.version)
        for design, log in catalogue.devlogs.items()
        for entry in log.entries
        if entry.negative
    }
    kept = [v for v in versions if (v.design_key, v.version) not in failed]
    return list({version.design_key: version for version in kept}.values())


def _bases() -> Iterator[Version]:
    return (versions[0] for versions in registry.designs().values())


def flags_of(workload: Workload) -> Any:
    """The dataclass whose fields are all flags: the workload's shared axes, then the options."""
    problem, hints = workload.problem, get_type_hints(BenchOptions)
    types = problem.benchmark_kernel_argparse()
    fields = [tyro_field(f, types[f.name]) for f in problem.option_fields()]
    for f in dataclasses.fields(BenchOptions):
        # What is off has one form; --no_no_autotune would be another.
        off = [tyro.conf.FlagCreatePairsOff] if f.default is False else []
        fields.append(tyro_field(f, hints[f.name], *off))
    return dataclasses.make_dataclass("Bench", fields, frozen=True)


def plan_of(version: Version, workload: Workload, options: Any) -> KernelPlan:
    """A version's plan of the asked problem, validated."""
    shared = {f.name: getattr(options, f.name) for f in workload.problem.option_fields()}
    plan = version.plan_of(shared)
    plan.validate()
    return plan


def plans_of(
    versions: Sequence[Version], workload: Workload, options: Any
) -> tuple[list[tuple[Version, KernelPlan]], list[Row]]:
    """Plans of the asked problem, and rows for the versions that do not take it.

    Raises:
        PlanError: No version takes it; says what the first one says.
    """
    plans, refused, errors = [], [], []
    for version in versions:
        try:
            plans.append((version, plan_of(version, workload, options)))
        except PlanError as error:
            errors.append(error)
            refused.append(Row(version, version.plan_class()(), None, str(error)))
    if not plans:
        raise errors[0]
    return plans, refused


class Runner:
    """Runs one version after another as the options say; all options are checked beforehand.

    Raises:
        UsageError: An option is out of range, or means nothing here.
    """

    def __init__(self, options: Any) -> None:
        from mla_var3.app.launcher import has_gpu

        workloads.check_minima(BenchOptions(**_given(options)), UsageError, "--")
        self.options, self.gpu = options, has_gpu()
        if options.arch is not None and self.gpu:
            raise UsageError("--arch is for static runs; on a machine with a GPU bench times on it")

    def all(self, plans: Sequence[tuple[Version, KernelPlan]], console: Console) -> list[Row]:
        """Rows of all versions: one after another, or in interleaved rounds beside peers."""
        if self.options.peers and self.gpu:
            return self._in_rounds(plans, console)
        rows: list[Row] = []
        for number, (version, plan) in enumerate(plans, 1):
            console.print(f"[{number}/{len(plans)}] {version.key}", markup=False)
            rows += self(version, plan)
        return rows

    def _in_rounds(
        self, plans: Sequence[tuple[Version, KernelPlan]], console: Console
    ) -> list[Row]:
        from mla_var3.profiling import rounds
        from mla_var3.profiling.job import Job
        from mla_var3.profiling.settings import Settings

        settings = Settings(
            bench_runs=self.options.bench_runs, no_autotune=self.options.no_autotune,
            check=self.options.check, progress=lambda text: console.print(text, markup=False),
        )  # fmt: skip
        rows = []
        jobs = [Job(version, plan, None, settings) for version, plan in plans]
        for entry, record in rounds.timed(jobs, settings):
            if record is not None:
                evidence.write(record)
            rows.append(Row(entry.job.version, entry.job.plan, record, entry.absent))
        return rows

    def __call__(self, version: Version, plan: KernelPlan) -> list[Row]:
        from mla_var3.profiling import modes

        mode, settings = self._how(version)
        try:
            result = modes.run(mode, plan, version=version, **settings)
        except (ToolchainError, NotExecutableError) as error:
            return [Row(version, plan, None, str(error))]
        return [Row(version, plan, record) for record in result.records]

    def _how(self, version: Version) -> tuple[str, dict[str, Any]]:
        from mla_var3.profiling.static import parse_archs

        names = ("bench_runs", "no_autotune", "check")
        if self.gpu:
            return "event", {name: getattr(self.options, name) for name in names}
        if languages.find(version.language).archs:
            archs = parse_archs(self.options.arch, version.language)
            return "static", {"archs": archs, "check": self.options.check}
        return "disabled", {}


def _given(options: Any) -> dict[str, Any]:
    return {f.name: getattr(options, f.name) for f in dataclasses.fields(BenchOptions)}


def table(rows: Sequence[Row]) -> Table:
    """The comparison; ratios are against the first version that was timed in the same run."""
    first = next((row for row in rows if winner.median(row.record) is not None), None)
    made = Table(title="bench")
    for column in COLUMNS:
        name = f"against {first.version.key}" if column == "against" and first else column
        made.add_column(name, overflow="fold")
    for row in rows:
        if row.record is None:
            made.add_row(row.version.key, "", "", "absent", "", "", "", row.absent)
        else:
            made.add_row(row.version.key, *_cells(row.record, first.record if first else None))
    return made


def _cells(record: Record, first: Record | None) -> tuple[str, ...]:
    outcome, median = record.outcome, winner.median(record)
    if isinstance(outcome, evidence.Failed):
        return record.target, record.slug, "failed", "", "", "", outcome.error
    if isinstance(outcome, evidence.Skipped):
        return record.target, record.slug, "skipped", "", "", "", outcome.reason
    least, share, than = costs.bound(record), costs.fraction(record), winner.median(first)
    ratio = ""
    if median is not None and than is not None and first is not None and first.run == record.run:
        ratio = "" if record is first else said(than, median)
    return (
        record.target, record.slug, f"{median:.1f}" if median is not None else "", ratio,
        f"{least.time_us:.1f}" if least is not None else "", f"{1 / share:.2f}" if share else "",
        _compiled(outcome),
    )  # fmt: skip


def _compiled(outcome: Passed) -> str:
    return "; ".join(
        f"{f.registers}r {f.stack_bytes}B {f.mma_path}" for f in outcome.facts
    ) or "; ".join(tiling_text(stage.tiling) for stage in outcome.stages)


def covered(rows: Sequence[Row]) -> list[str]:
    """What one run of each design covers, where that differs within the workload."""
    by_text: dict[str, dict[str, None]] = {}
    for row in rows:
        by_text.setdefault(row.plan.covers, {})[row.version.design_key] = None
    if len(by_text) < 2:
        return []
    return [f"{', '.join(designs)}: {text}" for text, designs in by_text.items()]
