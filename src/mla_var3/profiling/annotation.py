"""Mode ``annotation``: counters and times of each stage through nsight-python."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mla_var3 import records
from mla_var3.errors import ToolchainError
from mla_var3.paths import out_dir as default_out_dir
from mla_var3.profiling import event, recording
from mla_var3.profiling.event import ProfileResult
from mla_var3.runtime.autotune import Progress
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version, find

#: Nsight Compute's names of what is collected for each stage.
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "launch__registers_per_thread",
)
DURATION = "gpu__time_duration.sum"


def load_nsight() -> Any:
    """The nsight package.

    Raises:
        ToolchainError: It, or a library it needs, is not installed.
    """
    try:
        return importlib.import_module("nsight")
    except ImportError as error:
        raise ToolchainError(
            f"mode annotation needs nsight-python and Nsight Compute ({error}); install "
            "'mla_var3[gpu]', or use --prof_type=event"
        ) from error


def stage_values(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, tuple[float, ...]]]:
    """Mean, least and greatest value by stage and metric from nsight-python's table.

    Args:
        rows: Rows with Annotation, Metric, AvgValue, MinValue, MaxValue, NumRuns. Older releases
            name the metric column ``Metric`` or leave it out where only one was asked for.

    Raises:
        ToolchainError: The table lacks a column, so that another release changed it.
    """
    values: dict[str, dict[str, tuple[float, ...]]] = {}
    for row in rows:
        try:
            name, metric = str(row["Annotation"]), str(row.get("Metric", DURATION))
            found = (row["AvgValue"], row["MinValue"], row["MaxValue"], row["NumRuns"])
        except KeyError as error:
            raise ToolchainError(
                f"nsight-python's result has no column {error}; it has {sorted(map(str, row))}"
            ) from error
        if all(math.isfinite(v) for v in found):
            values.setdefault(name, {})[metric] = tuple(float(v) for v in found)
    return values


def annotation_profile_plan(
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
    """Profile each stage of ``plan`` under Nsight Compute through nsight-python.

    The event mode runs first (it checks and tunes); its totals are kept, since a profiler's own
    times hold its overhead. nsight-python runs this process's command again under ``ncu``.

    Args:
        plan: What to run.
        version: The version it belongs to, or ``"<design> <version>"``.
        out_dir: Results folder.
        artefacts: Folder for the profiler's files; ``out/`` by default.
        label: Prefix of progress lines.
        bench_runs: Timed runs of the event mode; the profiler takes five.
        check: Compare with the reference first.
        no_autotune: Keep the default tilings.
        retune: Tune even where tuned tilings are stored.
        tune_max_iters: Tilings to time a stage.
        progress: Told what happens.

    Raises:
        ToolchainError: nsight-python or Nsight Compute is missing or refuses.
    """
    nsight = load_nsight()  # Before CUDA starts: newer releases attach at import.
    event.require_gpu("annotation")
    found = find(*version.split()) if isinstance(version, str) else version
    timed = event.event_profile_plan(
        plan, version=found, out_dir=out_dir, label=label, bench_runs=bench_runs, check=check,
        no_autotune=no_autotune, retune=retune, tune_max_iters=tune_max_iters, progress=progress,
        replace=False,
    )  # fmt: skip
    if isinstance(timed.record.outcome, records.Failed):
        return timed
    folder = (artefacts or default_out_dir()) / found.design / found.version / "annotation"
    folder.mkdir(parents=True, exist_ok=True)
    progress("profiling each stage with nsight-python")

    @nsight.analyze.kernel(
        runs=5, metrics=list(METRICS), output="quiet", output_prefix=f"{folder}/"
    )
    def profiled() -> None:
        _, obj = event.bind_tuned(found, plan, tuned=not no_autotune)
        for path, kernel in obj.stages():
            with nsight.annotate(path):
                kernel()

    try:
        table = profiled().to_dataframe()
    except (RuntimeError, OSError, ValueError, nsight.exceptions.ProfilerException) as error:
        raise ToolchainError(f"nsight-python could not profile: {str(error).strip()}") from error
    values = stage_values(table.to_dict("records"))
    outcome = timed.record.outcome
    stages = [
        stage.model_copy(
            update={"counters": {m: round(v[0], 4) for m, v in values.get(stage.name, {}).items()}}
        )
        for stage in outcome.stages
    ]
    files = sorted(str(p) for p in folder.iterdir() if p.is_file())
    record = timed.record.model_copy(
        update={
            "mode": "annotation",
            "outcome": outcome.model_copy(update={"stages": stages, "artefacts": files}),
            "toolchain": recording.toolchain((*recording.GPU_TOOLS, "nsight-python")),
        }
    )
    path, _ = records.write(record, out_dir)
    return ProfileResult(record, (*timed.paths, path))
