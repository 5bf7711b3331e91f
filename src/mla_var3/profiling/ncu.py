"""Mode ``ncu``: all counters of each stage through the Nsight Compute command line."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mla_var3 import languages
from mla_var3.errors import ToolchainError
from mla_var3.paths import write_atomic
from mla_var3.profiling import prologue, replay
from mla_var3.profiling.prologue import Observed, Run
from mla_var3.profiling.settings import ProfileResult, Settings

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


def ncu_profile_plan(plan: Any, **settings: Any) -> ProfileResult:
    """Time ``plan`` with events, then collect Nsight Compute's full set for each stage.

    Args:
        plan: What to run.
        settings: Fields of :class:`mla_var3.profiling.settings.Settings`.

    Raises:
        ToolchainError: There is no GPU; Nsight Compute is missing or refuses.
    """
    find_ncu()
    return prologue.profile("ncu", plan, Settings(**settings), _collect)


def find_ncu() -> str:
    """Path of the ``ncu`` command.

    Raises:
        ToolchainError: It is not on PATH.
    """
    if (path := shutil.which("ncu")) is None:
        raise ToolchainError("mode ncu needs Nsight Compute's command ncu on PATH")
    return path


def _collect(run: Run) -> Observed:
    run.settings.say("profiling under Nsight Compute (full set; about 40 passes per kernel)")
    launched = launches(run)
    report = run.folder / "profile.ncu-rep"
    spec = replay.write(run.folder, run.version, run.plan)
    replay.run(command(report, launched.values(), spec), "ncu")
    raw = replay.run([find_ncu(), "--import", str(report), "--page", "raw", "--csv"], "ncu")
    write_atomic(run.folder / "counters.csv", raw)
    rows = parse_raw(raw)
    return Observed({path: counters(rows, pattern) for path, pattern in launched.items()})


def launches(run: Run) -> dict[str, re.Pattern[str]]:
    """What a profiler calls the launches of each stage, by its path."""
    stages = run.plan.plan(*run.plan.prepare_inputs("meta")).stages()
    return {path: languages.find(kernel.language).launches(kernel) for path, kernel in stages}


def command(report: Path, patterns: Iterable[re.Pattern[str]], spec: Path) -> list[str]:
    """The command that profiles one run of a plan's file without touching the clocks."""
    names = "|".join(dict.fromkeys(pattern.pattern for pattern in patterns))
    return [
        find_ncu(), "--set", "full", "--clock-control", "none", "--import-source", "yes",
        "--force-overwrite", "--kernel-name", f"regex:^({names})", "--export", str(report),
        *replay.command(spec),
    ]  # fmt: skip


def counters(rows: Iterable[dict[str, float | str]], pattern: re.Pattern[str]) -> dict[str, float]:
    """The kept counters of a stage's launch; of its longest where it has several."""
    own = [row for row in rows if pattern.match(str(row.get("Kernel Name", "")))]
    longest = max(own, key=lambda row: float(row.get("gpu__time_duration.sum") or 0), default={})
    return {k: v for k, v in longest.items() if isinstance(v, float) and KEPT.fullmatch(k)}


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
    try:
        rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    except csv.Error as error:
        raise ToolchainError(f"ncu printed no table of counters: {error}") from error
    if not rows:
        return []
    units, launches = rows[0], rows[1:]
    # Cells beyond the header lie under None.
    return [
        {k: _base(v, units.get(k) or "") for k, v in row.items() if k is not None and v}
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
