"""Mode ``nsys``: records the timeline of a plan's launches, by Nsight Systems or else CUPTI.

Traced are one run launch by launch, each launch in a range of its stage's name, and one replay of a
CUDA graph, which is what mode ``event`` times. The overlap is that of the replay: a Python host
that launches one kernel after another may be slower than the kernels.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from mla_var3 import front, inputs
from mla_var3.paths import write_atomic
from mla_var3.profiling import binding, prologue, replay, timeline
from mla_var3.profiling.ncu import launches as names_of
from mla_var3.profiling.prologue import Observed, Run
from mla_var3.profiling.settings import ProfileResult, Settings
from mla_var3.profiling.timeline import Launch
from mla_var3.profiling.timing import capture
from mla_var3.runtime import waiting
from mla_var3.runtime.kernel import RuntimeObject

STATS, TRACE = "stats", "chrome_trace.json"
#: Nsight Systems' tables; each is a file of ``stats/`` that ends so.
TABLES = ("cuda_gpu_trace", "nvtx_gpu_proj_trace", "cuda_api_sum")

#: A range of a name on the profiler's timeline.
Within = Callable[[str], contextlib.AbstractContextManager[Any]]


def nsys_profile_plan(plan: Any, **settings: Any) -> ProfileResult:
    """Time ``plan`` with events, then record where each kernel lies on the timeline.

    The record's counters say how much of the busy time several kernels shared, and where each
    stage ran; its toolchain which collector was used.

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
        run.job.say("nsys is not on PATH: using CUPTI through torch.profiler")
        found, collector = _with_cupti(run), "cupti"
    patterns = names_of(run)
    own = [x for x in found if any(p.match(x.name) for p in patterns.values())]
    counters = timeline.figures(timeline.last_run(own), patterns)
    return Observed(counters, {"timeline": collector})


# -- what is traced --------------------------------------------------------------------------------


def prepare(obj: RuntimeObject) -> Callable[[Within], None]:
    """What a profiler is to watch, compiled and warmed up: a run, then a replay of its graph."""
    graph = capture(obj)

    def watched(within: Within) -> None:
        with named(obj, within):
            obj()
        waiting.synchronize()
        graph.replay()
        waiting.synchronize()

    return watched


@contextlib.contextmanager
def named(obj: RuntimeObject, within: Within) -> Iterator[None]:
    """Context in which each launch lies in an NVTX range named by its stage's path."""
    kernels = obj.stages()
    for path, kernel in kernels:
        vars(kernel)["launch"] = _in_range(kernel.launch, path, within)
    try:
        yield
    finally:
        for _, kernel in kernels:
            del vars(kernel)["launch"]


def _in_range(launch: Callable[[], None], path: str, within: Within) -> Callable[[], None]:
    def ranged() -> None:
        with within(path):
            launch()

    return ranged


# -- with Nsight Systems ---------------------------------------------------------------------------


def _with_nsys(nsys: str, run: Run) -> list[Launch]:
    report = run.folder / "profile.nsys-rep"
    body = replay.command(replay.write(run.folder, run.job), __name__)
    profile = [
        nsys, "profile", "--trace=cuda,nvtx", "--cuda-graph-trace=node",
        "--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--force-overwrite=true",
        f"--output={report}", *body,
    ]  # fmt: skip
    replay.run(profile, "nsys")
    tables = run.folder / STATS / "profile"
    tables.parent.mkdir()
    stats = [nsys, "stats", "--format=csv", f"--output={tables}"]
    replay.run([*stats, *(f"--report={name}" for name in TABLES), str(report)], "nsys")
    found = timeline.parse_nsys(inputs.read_text(_table(run.folder, TABLES[0])))
    write_atomic(run.folder / TRACE, timeline.chrome(found))
    return found


def _table(folder: Path, name: str) -> Path:
    return folder / STATS / f"profile_{name}.csv"


# -- with CUPTI ------------------------------------------------------------------------------------


def _with_cupti(run: Run) -> list[Launch]:
    watched = prepare(binding.bind(run.job.plan))
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profiler:
        watched(torch.profiler.record_function)
    path = run.folder / TRACE
    profiler.export_chrome_trace(str(path))
    trace = inputs.read_json(path)
    found, calls = timeline.parse_chrome(trace), timeline.parse_calls(trace)
    ranges = timeline.parse_ranges(trace)
    texts = (
        timeline.gpu_trace(found), timeline.projected(ranges, calls, found),
        timeline.api_sum(calls),
    )  # fmt: skip
    for name, text in zip(TABLES, texts, strict=True):
        write_atomic(_table(run.folder, name), text)
    return found


def main() -> int:
    """Run the plan of the file that the process's first argument names, for Nsight Systems."""
    watched = prepare(replay.bind(Path(sys.argv[1])))
    torch.cuda.profiler.start()
    watched(torch.cuda.nvtx.range)
    torch.cuda.profiler.stop()
    return 0


if __name__ == "__main__":
    front.run("mla_var3.profiling.nsys:main")
