"""Mode ``ncu``: all counters of each stage through the Nsight Compute command line."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mla_var3 import records
from mla_var3.app import options
from mla_var3.errors import ToolchainError
from mla_var3.paths import out_dir as default_out_dir
from mla_var3.paths import write_atomic
from mla_var3.profiling import event
from mla_var3.profiling.event import ProfileResult
from mla_var3.runtime.autotune import Progress
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version, find

#: Counters that a record keeps; the whole set stays in the CSV beside the report.
KEPT = re.compile(
    r"gpu__time_duration\.sum"
    r"|(sm__throughput|(gpu__)?dram(__|_)throughput|gpu__compute_memory_throughput)\.avg\.pct.*"
    r"|dram__bytes_(read|write)\.sum"
    r"|lts__t_sector_hit_rate\.pct"
    r"|l1tex__t_sectors_pipe_lsu_mem_local_op_(ld|st)\.sum"
    r"|sm__(inst_executed_pipe|pipe)_tensor(_cycles_active|_op_hmma_cycles_active|_op_gmma)?"
    r"\.avg\.pct_of_peak_sustained_active"
    r"|sm__warps_active\.avg\.pct_of_peak_sustained_active"
    r"|smsp__issue_active\.avg\.pct_of_peak_sustained_active"
    r"|smsp__warps_(active|eligible)\.avg\.per_cycle_active"
    r"|smsp__average_warps_issue_stalled_\w+_per_issue_active\.ratio"
    r"|smsp__inst_executed\.sum"
    r"|launch__(registers_per_thread|stack_size|shared_mem_per_block|grid_size|block_size"
    r"|waves_per_multiprocessor|occupancy_limit_\w+)"
)
#: Factors that bring Nsight Compute's scaled units back to base units.
SCALES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

#: What follows the function's name in a compiled kernel's; the name may be another's beginning.
KERNEL_END = "(_Kt|$)"


def find_ncu() -> str:
    """Path of the ``ncu`` command.

    Raises:
        ToolchainError: It is not on PATH.
    """
    if (path := shutil.which("ncu")) is None:
        raise ToolchainError("mode ncu needs Nsight Compute's command ncu on PATH")
    return path


def command(
    ncu: str, report: Path, kernels: Sequence[str], version: Version, plan: KernelPlan
) -> list[str]:
    """The command that profiles one run of ``plan`` without touching the clocks."""
    names = "|".join(re.escape(name) for name in dict.fromkeys(kernels))
    return [
        ncu, "--set", "full", "--clock-control", "none", "--import-source", "yes",
        "--force-overwrite",
        "--kernel-name", f"regex:^({names}){KERNEL_END}", "--export", str(report),
        sys.executable, "-m", "mla_var3.kernel", version.design, version.version,
        *options.to_argv(plan), "--prof_type=disabled",
    ]  # fmt: skip


def parse_raw(text: str) -> list[dict[str, float | str]]:
    """Rows of ``ncu --page raw --csv``: a dict of metric to value for each launch.

    Numbers come back in base units (bytes, seconds); ``Kernel Name`` stays text.

    Raises:
        ToolchainError: The text holds no table.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise ToolchainError("ncu printed no table of counters: " + " ".join(text.split())[:300])
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    if not rows:
        return []
    units, launches = rows[0], rows[1:]
    return [
        {name: _base(value, units.get(name) or "") for name, value in row.items() if value}
        for row in launches
    ]


def _base(value: str, unit: str) -> float | str:
    try:
        number = float(value.replace(",", ""))
    except ValueError:
        return value
    if not math.isfinite(number):
        return value  # A counter that could not be collected: text, and so no number of a record.
    match = re.fullmatch(r"(n|u|m|K|M|G|T)(second|s|byte|hertz|Hz|inst|sector)(/.*)?", unit)
    return number * SCALES[match.group(1)] if match else number


def ncu_profile_plan(
    plan: KernelPlan,
    *,
    version: Version | str,
    out_dir: Path | None = None,
    artefacts: Path | None = None,
    label: str | None = None,
    bench_runs: int = 50,
    check: bool = True,
    no_autotune: bool = False,
    retune: bool = False,
    tune_max_iters: int = 32,
    progress: Progress = lambda _: None,
) -> ProfileResult:
    """Time ``plan`` with events, then collect Nsight Compute's full set for each stage.

    Arguments and errors are those of :func:`mla_var3.profiling.event.event_profile_plan`;
    ``artefacts`` receives the ``.ncu-rep`` file, which the record names.
    """
    ncu = find_ncu()
    event.require_gpu("ncu")
    found = find(*version.split()) if isinstance(version, str) else version
    timed = event.event_profile_plan(
        plan, version=found, out_dir=out_dir, label=label, bench_runs=bench_runs, check=check,
        no_autotune=no_autotune, retune=retune, tune_max_iters=tune_max_iters, progress=progress,
        replace=False,
    )  # fmt: skip
    outcome = timed.record.outcome
    if isinstance(outcome, records.Failed):
        return timed
    folder = (artefacts or default_out_dir()) / found.design / found.version / "ncu"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / f"{timed.record.slug}.ncu-rep"
    tuned, _ = event.bind_tuned(found, plan, tuned=not no_autotune)
    kernels = [stage.kernel for stage in outcome.stages]
    progress("profiling under Nsight Compute (full set; about 40 passes a kernel)")
    _run(command(ncu, report, kernels, found, tuned))
    raw = _run([ncu, "--import", str(report), "--page", "raw", "--csv"])
    write_atomic(folder / f"{timed.record.slug}.csv", raw)
    launches = parse_raw(raw)
    stages = []
    for stage in outcome.stages:
        ours = re.compile(rf"{re.escape(stage.kernel)}{KERNEL_END}")
        row = next((r for r in launches if ours.match(str(r.get("Kernel Name", "")))), {})
        counters = {k: v for k, v in row.items() if isinstance(v, float) and KEPT.fullmatch(k)}
        stages.append(stage.model_copy(update={"counters": counters}))
    record = timed.record.model_copy(
        update={
            "mode": "ncu",
            "outcome": outcome.model_copy(update={"stages": stages, "artefacts": [report.name]}),
        }
    )
    path, _ = records.write(record, out_dir)
    return ProfileResult(record, (*timed.paths, path, report))


def _run(arguments: Sequence[str]) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-400:]
        raise ToolchainError(f"ncu ended with code {done.returncode}: {said}")
    return done.stdout
