"""Mode ``ncu``: times a plan, then runs Nsight Compute on each stage for counters and advice."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mla_var3 import inputs, languages
from mla_var3.errors import ToolchainError
from mla_var3.paths import write_atomic
from mla_var3.profiling import ncu_files, ncu_rep, prologue, replay, verbose
from mla_var3.profiling.ncu_rep import Profiled
from mla_var3.profiling.prologue import Observed, Run
from mla_var3.profiling.settings import ProfileResult, Settings
from mla_var3.runtime.registry import Version

#: Counters that a record keeps; the whole set stays in the files of each stage.
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
#: Factors that bring Nsight Compute's units to those of a record.
SCALES = {"ns": 1e-9}
REPORT, VERBOSE = "profile.ncu-rep", "report-verbose.md"


def ncu_profile_plan(plan: Any, **settings: Any) -> ProfileResult:
    """Time ``plan`` with events, then collect Nsight Compute's full set for each stage.

    Each stage leaves a folder with all counters, its SASS with what was counted and sampled at
    each instruction, its PTX, and its Python source with what each line cost. What Nsight Compute
    recommends stands, ranked, in report-verbose.md.

    Args:
        plan: What to run.
        settings: Fields of :class:`mla_var3.profiling.settings.Settings`.

    Raises:
        ToolchainError: There is no GPU; Nsight Compute or its reader is missing or refuses.
    """
    find_ncu()
    if (lacking := ncu_rep.missing()) is not None:
        raise ToolchainError(f"mode ncu cannot read its own report: {lacking}")
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
    run.job.say("profiling under Nsight Compute (full set; about 40 passes per kernel)")
    patterns = launches(run)
    report = run.folder / REPORT
    spec = replay.write(run.folder, run.job)
    replay.run(command(report, patterns.values(), spec), "ncu")
    return observed(run, patterns, ncu_rep.read(report))


def observed(run: Run, patterns: Mapping[str, re.Pattern[str]], found: list[Profiled]) -> Observed:
    """What a report says of each stage; leaves the files made of it in the run's folder."""
    launched = {path: launch for path, p in patterns.items() if (launch := longest(found, p))}
    own = {path: with_sources(launch, run.job.version) for path, launch in launched.items()}
    for path, launch in own.items():
        ncu_files.write(run.folder / path, launch)
    language = run.job.language
    text = verbose.render(run.job.version.key, language.title, own, language.levers)
    write_atomic(run.folder / VERBOSE, text)
    return Observed({path: counters(launch) for path, launch in own.items()})


def with_sources(launch: Profiled, version: Version) -> Profiled:
    """The launch with those sources of its version that the report lacks.

    It does where a kernel was compiled in another place than it ran: then a file is known by its
    name.
    """
    here = {path.name: path for path in version.source_files()}
    lacking = {x.file for x in launch.instructions} - {"", *(launch.sources or {})}
    found = {
        name: inputs.read_text(here[Path(name).name])
        for name in sorted(lacking)
        if Path(name).name in here
    }
    return dataclasses.replace(launch, sources={**(launch.sources or {}), **found})


def launches(run: Run) -> dict[str, re.Pattern[str]]:
    """What a profiler calls the launches of each stage, by its path."""
    stages = run.job.plan.plan(*run.job.plan.prepare_inputs("meta")).stages()
    return {path: languages.find(kernel.language).launches(kernel) for path, kernel in stages}


def command(report: Path, patterns: Iterable[re.Pattern[str]], spec: Path) -> list[str]:
    """The command that profiles one run of a plan's file without touching the clocks."""
    names = "|".join(dict.fromkeys(pattern.pattern for pattern in patterns))
    return [
        find_ncu(), "--set", "full", "--clock-control", "none", "--import-source", "yes",
        "--force-overwrite", "--kernel-name", f"regex:^({names})", "--export", str(report),
        *replay.command(spec),
    ]  # fmt: skip


def longest(found: Sequence[Profiled], pattern: re.Pattern[str]) -> Profiled | None:
    """A stage's launch; its longest where it has several."""
    own = [launch for launch in found if pattern.match(launch.name)]
    return max(own, key=lambda x: x.value("gpu__time_duration.sum") or 0.0, default=None)


def counters(launch: Profiled) -> dict[str, float]:
    """The counters that a record keeps, in seconds and bytes."""
    return {
        m.name: m.value * SCALES.get(m.unit, 1.0)
        for m in launch.metrics
        if isinstance(m.value, float) and KEPT.fullmatch(m.name)
    }
