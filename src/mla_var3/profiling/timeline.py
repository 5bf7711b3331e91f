"""Parses traces of kernel launches (Nsight Systems, CUPTI) into one table, and computes overlap."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mla_var3.errors import ToolchainError
from mla_var3.tables import csv_text

#: Counters of a record: share of the busy time in which two kernels ran or more; of each stage
#: its stream, its start and span in microseconds from the first launch, and how long it shared.
OVERLAP = "timeline__overlap_fraction"
STREAM, START = "timeline__stream", "timeline__start_us"
SPAN, SHARED = "timeline__span_us", "timeline__shared_us"
HEADER = ("stage", "stream", "starts at us", "runs for us", "beside another us")

#: Nsight Systems' names of its columns, as far as CUPTI through torch.profiler tells them.
TRACE = ("Start (ns)", "Duration (ns)", "CorrId", "GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ",
         "Reg/Trd", "Strm", "Name")  # fmt: skip
PROJECTED = ("Name", "Projected Start (ns)", "Projected Duration (ns)", "Orig Start (ns)",
             "Orig Duration (ns)", "Style", "NumGPUOps")  # fmt: skip
SUMMED = ("Time (%)", "Total Time (ns)", "Num Calls", "Avg (ns)", "Med (ns)", "Min (ns)",
          "Max (ns)", "StdDev (ns)", "Name")  # fmt: skip
#: What torch.profiler calls the kinds of events that are read here.
KERNELS, RANGES, CALLS = ("kernel",), ("user_annotation",), ("cuda_runtime", "cuda_driver")

T = TypeVar("T")


@dataclass(frozen=True)
class Event:
    """Something with a name on the timeline; times in nanoseconds.

    Attributes:
        name: A kernel, a range or a call.
        start_ns: When it began.
        duration_ns: How long it took.
        correlation: Joins a launch to the call that made it; 0 where nothing tells.
    """

    name: str
    start_ns: int
    duration_ns: int
    correlation: int = 0

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True)
class Launch(Event):
    """One kernel.

    Attributes:
        stream: Its stream, as the collector numbers them.
        grid: Blocks per axis; empty where nothing tells.
        block: Threads per axis; empty where nothing tells.
        registers: Registers per thread; None where nothing tells.
    """

    stream: int = 0
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    registers: int | None = None


# -- from Nsight Systems ---------------------------------------------------------------------------


def parse_nsys(text: str) -> list[Launch]:
    """Launches of ``nsys stats --report cuda_gpu_trace --format csv``, in order.

    Raises:
        ToolchainError: A column is missing.
    """
    start = text.find("Start (ns)")
    try:
        found = [
            Launch(
                row["Name"], int(row["Start (ns)"]), int(row["Duration (ns)"]),
                int(row.get("CorrId") or 0), int(row["Strm"]),
            )
            for row in csv.DictReader(io.StringIO(text[max(start, 0) :]))
        ]  # fmt: skip
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        said = str(error)[:120]
        raise ToolchainError(f"nsys printed no kernel trace (missing {said})") from error
    return sorted(found, key=lambda launch: launch.start_ns)


def chrome(launches: Iterable[Launch]) -> str:
    """A Chrome trace of launches, a row per stream, for a viewer such as Perfetto."""
    events = [
        {"ph": "X", "cat": "kernel", "name": x.name, "pid": 0, "tid": x.stream,
         "ts": x.start_ns / 1e3, "dur": x.duration_ns / 1e3,
         "args": {"stream": x.stream, "correlation": x.correlation}}
        for x in launches
    ]  # fmt: skip
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, indent=0) + "\n"


# -- from CUPTI ------------------------------------------------------------------------------------


def parse_chrome(trace: Any) -> list[Launch]:
    """Kernel launches of a Chrome trace that torch.profiler exported, in order.

    Raises:
        ToolchainError: It is not such a trace.
    """
    return sorted(_events(trace, KERNELS, _launch), key=lambda launch: launch.start_ns)


def parse_calls(trace: Any) -> list[Event]:
    """Calls of the CUDA API in the same trace."""
    return _events(trace, CALLS, _event)


def parse_ranges(trace: Any) -> list[Event]:
    """Named ranges of the host in the same trace."""
    return _events(trace, RANGES, _event)


def _events(trace: Any, kinds: Sequence[str], make: Callable[[dict[str, Any]], T]) -> list[T]:
    try:
        return [make(e) for e in trace.get("traceEvents", ()) if e.get("cat") in kinds]
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        said = str(error)[:120]
        raise ToolchainError(f"torch.profiler exported no kernel trace ({said})") from error


def _event(entry: dict[str, Any]) -> Event:
    return Event(str(entry["name"]), *_times(entry), int(str(_of(entry, "correlation", 0))))


def _launch(entry: dict[str, Any]) -> Launch:
    registers = _of(entry, "registers per thread", None)
    return Launch(
        str(entry["name"]), *_times(entry), int(str(_of(entry, "correlation", 0))),
        stream=int(str(_of(entry, "stream", 0))),
        grid=tuple(int(x) for x in _of(entry, "grid", ())),
        block=tuple(int(x) for x in _of(entry, "block", ())),
        registers=None if registers is None else int(str(registers)),
    )  # fmt: skip


def _of(entry: dict[str, Any], name: str, default: Any) -> Any:
    detail = entry.get("args")
    return detail.get(name, default) if isinstance(detail, dict) else default


def _times(entry: dict[str, Any]) -> tuple[int, int]:
    start, duration = (round(float(str(entry[name])) * 1e3) for name in ("ts", "dur"))
    return start, duration


def gpu_trace(launches: Iterable[Launch]) -> str:
    """Launches as Nsight Systems tables them in ``cuda_gpu_trace``."""
    rows = (
        (x.start_ns, x.duration_ns, x.correlation, *_three(x.grid), *_three(x.block),
         "" if x.registers is None else x.registers, x.stream, x.name)
        for x in launches
    )  # fmt: skip
    return csv_text(TRACE, rows)


def _three(extents: tuple[int, ...]) -> tuple[object, ...]:
    return (*extents, "", "", "")[:3]


def projected(ranges: Iterable[Event], calls: Sequence[Event], launches: Iterable[Launch]) -> str:
    """Ranges on the GPU as ``nvtx_gpu_proj_trace`` has them: where what they launched ran."""
    made: dict[int, list[Launch]] = defaultdict(list)
    for launch in launches:
        made[launch.correlation].append(launch)
    rows = []
    for one in ranges:
        within = (x for x in calls if one.start_ns <= x.start_ns < one.end_ns)
        own = [launch for x in within for launch in made.get(x.correlation, ())]
        if own:
            start, end = min(x.start_ns for x in own), max(x.end_ns for x in own)
            rows.append((one.name, start, end - start, one.start_ns, one.duration_ns, "PushPop",
                         len(own)))  # fmt: skip
    return csv_text(PROJECTED, rows)


def api_sum(calls: Iterable[Event]) -> str:
    """Calls by name as ``cuda_api_sum`` sums them, the longest in all first."""
    by_name: dict[str, list[int]] = defaultdict(list)
    for call in calls:
        by_name[call.name].append(call.duration_ns)
    whole = sum(map(sum, by_name.values())) or 1
    ordered = sorted(by_name.items(), key=lambda x: (-sum(x[1]), x[0]))
    rows = (
        (f"{100 * sum(x) / whole:.1f}", sum(x), len(x), f"{statistics.fmean(x):.1f}",
         f"{statistics.median(x):.1f}", min(x), max(x),
         f"{statistics.stdev(x) if len(x) > 1 else 0:.1f}", name)
        for name, x in ordered
    )  # fmt: skip
    return csv_text(SUMMED, rows)


# -- figures ---------------------------------------------------------------------------------------


def busy(launches: Iterable[Event]) -> tuple[int, int]:
    """Nanoseconds in which at least one ran, and in which at least two did."""
    points = sorted(point for x in launches for point in ((x.start_ns, 1), (x.end_ns, -1)))
    any_ran = shared = depth = 0
    for (time, step), (after, _) in itertools.pairwise(points):
        depth += step
        any_ran += (after - time) * (depth >= 1)
        shared += (after - time) * (depth >= 2)
    return any_ran, shared


def overlap(launches: Iterable[Event]) -> float:
    """Share of the busy time in which at least two kernels ran."""
    any_ran, shared = busy(launches)
    return shared / any_ran if any_ran else 0.0


def last_run(launches: Sequence[Launch]) -> list[Launch]:
    """The later half of launches of the same kernels, made twice."""
    return list(launches[len(launches) // 2 :])


def figures(
    launches: Sequence[Launch], patterns: Mapping[str, re.Pattern[str]]
) -> dict[str, dict[str, float]]:
    """Counters of a run by stage.

    Args:
        launches: Those of one run, in order.
        patterns: What the launches of each stage are called, by its path.
    """
    share = {OVERLAP: round(overlap(launches), 4)}
    first = launches[0].start_ns if launches else 0
    found = {}
    for path, pattern in patterns.items():
        own = [x for x in launches if pattern.match(x.name)]
        others = [x for x in launches if not pattern.match(x.name)]
        found[path] = {**share, **_figures(own, others, first)}
    return found


def _figures(own: Sequence[Launch], others: Sequence[Launch], first: int) -> dict[str, float]:
    if not own:
        return {}
    start, end = min(x.start_ns for x in own), max(x.end_ns for x in own)
    both = busy(own)[0] + busy(others)[0] - busy([*own, *others])[0]
    return {
        STREAM: float(own[0].stream),
        START: (start - first) / 1e3,
        SPAN: (end - start) / 1e3,
        SHARED: both / 1e3,
    }


def shown(counters: Mapping[str, float]) -> list[str]:
    """A stage's figures as text, in the order of ``HEADER``."""
    times = [f"{counters[name]:.1f}" for name in (START, SPAN, SHARED)]
    return [f"{counters[STREAM]:.0f}", *times]
