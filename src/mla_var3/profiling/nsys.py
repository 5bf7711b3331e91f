"""Mode ``nsys``: the timeline, from Nsight Systems where it is installed, else from CUPTI."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import torch

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


@dataclass(frozen=True)
class Launch:
    """One kernel on the timeline; times in nanoseconds."""

    name: str
    start_ns: int
    duration_ns: int
    stream: int


def to_csv(launches: Iterable[Launch]) -> str:
    """The timeline as CSV, the same columns from either source."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([f.name for f in fields(Launch)])
    writer.writerows(astuple(launch) for launch in launches)
    return out.getvalue()


def parse_nsys(text: str) -> list[Launch]:
    """Launches of ``nsys stats --report cuda_gpu_trace --format csv``.

    Raises:
        ToolchainError: A column is missing.
    """
    start = text.find("Start (ns)")
    try:
        return [
            Launch(row["Name"], int(row["Start (ns)"]), int(row["Duration (ns)"]), int(row["Strm"]))
            for row in csv.DictReader(io.StringIO(text[max(start, 0) :]))
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ToolchainError(f"nsys printed no kernel trace (missing {error})") from error


def parse_chrome(trace: dict[str, list[dict[str, object]]]) -> list[Launch]:
    """Kernel launches of a Chrome trace that torch.profiler exported."""
    found = []
    for entry in trace.get("traceEvents", []):
        if entry.get("cat") == "kernel":
            detail = entry.get("args")
            stream = detail.get("stream", 0) if isinstance(detail, dict) else 0
            found.append(
                Launch(
                    str(entry["name"]),
                    round(float(str(entry["ts"])) * 1e3),
                    round(float(str(entry["dur"])) * 1e3),
                    int(str(stream)),
                )
            )
    return sorted(found, key=lambda launch: launch.start_ns)


def overlap(launches: Iterable[Launch]) -> float:
    """Share of the busy time in which at least two kernels ran."""
    points = sorted(
        point for x in launches for point in ((x.start_ns, 1), (x.start_ns + x.duration_ns, -1))
    )
    busy = shared = depth = 0
    for (time, step), (after, _) in itertools.pairwise(points):
        depth += step
        busy += (after - time) * (depth >= 1)
        shared += (after - time) * (depth >= 2)
    return shared / busy if busy else 0.0


def nsys_profile_plan(
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
    """Time ``plan`` with events, then record where each kernel lies on the timeline.

    Arguments and errors are those of :func:`mla_var3.profiling.event.event_profile_plan`;
    ``artefacts`` receives the trace and its CSV. The record's counters say how much of the busy
    time several kernels shared, and its toolchain which collector was used.
    """
    event.require_gpu("nsys")
    found = find(*version.split()) if isinstance(version, str) else version
    timed = event.event_profile_plan(
        plan, version=found, out_dir=out_dir, label=label, bench_runs=bench_runs, check=check,
        no_autotune=no_autotune, retune=retune, tune_max_iters=tune_max_iters, progress=progress,
        replace=False,
    )  # fmt: skip
    outcome = timed.record.outcome
    if isinstance(outcome, records.Failed):
        return timed
    folder = (artefacts or default_out_dir()) / found.design / found.version / "nsys"
    folder.mkdir(parents=True, exist_ok=True)
    tuned, obj = event.bind_tuned(found, plan, tuned=not no_autotune)
    names = {stage.kernel for stage in outcome.stages}
    if nsys := shutil.which("nsys"):
        launches, trace = _with_nsys(nsys, folder / timed.record.slug, found, tuned)
        collector = "nsys"
    else:
        progress("nsys is not on PATH: using CUPTI through torch.profiler")
        for _ in range(3):
            obj()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            obj()
            torch.cuda.synchronize()
        trace = folder / f"{timed.record.slug}.trace.json"
        profiler.export_chrome_trace(str(trace))
        launches = parse_chrome(json.loads(trace.read_text()))
        collector = "cupti"
    launches = [x for x in launches if any(x.name.startswith(name) for name in names)]
    table = folder / f"{timed.record.slug}.csv"
    write_atomic(table, to_csv(launches))
    share = round(overlap(launches), 4)
    stages = [
        stage.model_copy(update={"counters": {"timeline__overlap_fraction": share}})
        for stage in outcome.stages
    ]
    record = timed.record.model_copy(
        update={
            "mode": "nsys",
            "outcome": outcome.model_copy(
                update={"stages": stages, "artefacts": [trace.name, table.name]}
            ),
            "toolchain": {**timed.record.toolchain, "timeline": collector},
        }
    )
    path, _ = records.write(record, out_dir)
    return ProfileResult(record, (*timed.paths, path, trace, table))


def _with_nsys(
    nsys: str, stem: Path, version: Version, plan: KernelPlan
) -> tuple[list[Launch], Path]:
    report = stem.with_name(stem.name + ".nsys-rep")
    body = [
        sys.executable, "-m", "mla_var3.kernel", version.design, version.version,
        *options.to_argv(plan), "--prof_type=disabled",
    ]  # fmt: skip
    for arguments in (
        [nsys, "profile", "--trace=cuda", "--force-overwrite=true", f"--output={report}", *body],
        [nsys, "stats", "--report", "cuda_gpu_trace", "--format", "csv", str(report)],
    ):
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[-400:]
            raise ToolchainError(f"nsys ended with code {done.returncode}: {said}")
    return parse_nsys(done.stdout), report
