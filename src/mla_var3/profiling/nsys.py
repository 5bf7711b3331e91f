"""Mode ``nsys``: the timeline, from Nsight Systems where it is installed, else from CUPTI."""

from __future__ import annotations

import csv
import io
import itertools
import shutil
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from typing import Any

import torch

from mla_var3 import inputs
from mla_var3.errors import ToolchainError
from mla_var3.paths import write_atomic
from mla_var3.profiling import binding, prologue, replay
from mla_var3.profiling.ncu import launches as names_of
from mla_var3.profiling.prologue import Observed, Run
from mla_var3.profiling.settings import ProfileResult, Settings
from mla_var3.runtime import waiting

#: Runs before the one that CUPTI traces.
WARMUP_RUNS = 3


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
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        said = str(error)[:120]
        raise ToolchainError(f"nsys printed no kernel trace (missing {said})") from error


def parse_chrome(trace: Any) -> list[Launch]:
    """Kernel launches of a Chrome trace that torch.profiler exported.

    Raises:
        ToolchainError: It is not such a trace.
    """
    try:
        found = [_launch(e) for e in trace.get("traceEvents", ()) if e.get("cat") == "kernel"]
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        said = str(error)[:120]
        raise ToolchainError(f"torch.profiler exported no kernel trace ({said})") from error
    return sorted(found, key=lambda launch: launch.start_ns)


def _launch(entry: dict[str, Any]) -> Launch:
    detail = entry.get("args")
    stream = detail.get("stream", 0) if isinstance(detail, dict) else 0
    start, duration = (round(float(str(entry[name])) * 1e3) for name in ("ts", "dur"))
    return Launch(str(entry["name"]), start, duration, int(str(stream)))


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


def nsys_profile_plan(plan: Any, **settings: Any) -> ProfileResult:
    """Time ``plan`` with events, then record where each kernel lies on the timeline.

    The record's counters say how much of the busy time several kernels shared, and its toolchain
    which collector was used.

    Args:
        plan: What to run.
        settings: Fields of :class:`mla_var3.profiling.settings.Settings`.

    Raises:
        ToolchainError: There is no GPU, or Nsight Systems refuses.
    """
    return prologue.profile("nsys", plan, Settings(**settings), _collect)


def _collect(run: Run) -> Observed:
    if nsys := shutil.which("nsys"):
        found, collector = _with_nsys(nsys, run), "nsys"
    else:
        run.settings.say("nsys is not on PATH: using CUPTI through torch.profiler")
        found, collector = _with_cupti(run), "cupti"
    patterns = names_of(run)
    own = [x for x in found if any(p.match(x.name) for p in patterns.values())]
    write_atomic(run.folder / "timeline.csv", to_csv(own))
    share = {"timeline__overlap_fraction": round(overlap(own), 4)}
    return Observed(dict.fromkeys(patterns, share), {"timeline": collector})


def _with_nsys(nsys: str, run: Run) -> list[Launch]:
    report = run.folder / "profile.nsys-rep"
    body = replay.command(replay.write(run.folder, run.version, run.plan))
    profile = [nsys, "profile", "--trace=cuda", "--force-overwrite=true", f"--output={report}"]
    replay.run([*profile, *body], "nsys")
    stats = [nsys, "stats", "--report", "cuda_gpu_trace", "--format", "csv", str(report)]
    return parse_nsys(replay.run(stats, "nsys"))


def _with_cupti(run: Run) -> list[Launch]:
    obj = binding.bind(run.plan)
    for _ in range(WARMUP_RUNS):
        obj()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        obj()
        waiting.synchronize()
    trace = run.folder / "trace.json"
    profiler.export_chrome_trace(str(trace))
    return parse_chrome(inputs.read_json(trace))
