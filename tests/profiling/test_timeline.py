from __future__ import annotations

import csv
import io
import json
import re
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import inputs
from mla_var3.errors import ToolchainError
from mla_var3.profiling import timeline
from mla_var3.profiling.timeline import Event, Launch, overlap, parse_chrome, parse_nsys
from tests.profiling.reports import FIXTURES

TRACE = """Processing [x.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,Strm,Name
100,50,1,132,7,latent_Kt1
120,50,2,132,13,decompressed_Kt1
180,20,3,16,7,combine_Kt1
300,20,4,16,7,other
"""
LATENT = Launch("latent_Kt1", 100, 50, 1, 7)

launches = st.lists(
    st.builds(
        Launch, name=st.sampled_from("ab"), start_ns=st.integers(0, 60),
        duration_ns=st.integers(0, 30), stream=st.just(0),
    ),
    max_size=8,
)  # fmt: skip


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_trace_of_an_h200():
    """CUPTI's, of mla_shared_prefix v1: launched by Python, then replayed as a graph."""
    trace = inputs.read_json(FIXTURES / "cupti-trace.json")
    found, calls = parse_chrome(trace), timeline.parse_calls(trace)
    assert len(found) == 6
    latent, decompressed, combine = found[:3]
    assert (latent.stream, latent.grid, latent.block) == (7, (64, 1, 1), (384, 1, 1))
    assert (latent.duration_ns, latent.registers) == (33216, 168)
    # The host is slower than the kernels: none has begun when the one before ends.
    assert overlap(found[:3]) == 0.0
    assert decompressed.start_ns - latent.end_ns > latent.duration_ns
    # The replay shows what is timed.
    patterns = {"latent": re.compile(".*_flash_mla_v5_"), "prefix": re.compile(".*_attention_v3_"),
                "combine": re.compile(".*_combine_")}  # fmt: skip
    figures = timeline.figures(timeline.last_run(found), patterns)
    assert {x[timeline.OVERLAP] for x in figures.values()} == {0.4014}
    assert figures["latent"][timeline.SHARED] == figures["prefix"][timeline.SHARED] == 34.529
    assert figures["prefix"][timeline.START] == 12.8
    assert figures["combine"][timeline.SHARED] == 0.0
    # The tables that are made of it.
    assert [x.duration_ns for x in parse_nsys(timeline.gpu_trace(found))][:3] == [
        latent.duration_ns, decompressed.duration_ns, combine.duration_ns,
    ]  # fmt: skip
    summed = rows(timeline.api_sum(calls))
    assert {row["Name"]: row["Num Calls"] for row in summed}["cudaGraphLaunch"] == "1"
    assert sum(float(row["Time (%)"]) for row in summed) == pytest.approx(100, abs=0.5)
    ranges = rows(timeline.projected(timeline.parse_ranges(trace), calls, found))
    assert [row["Name"] for row in ranges] == ["parts.latent", "parts.decompressed", "combine"]
    assert [int(row["Projected Duration (ns)"]) for row in ranges] == [
        latent.duration_ns, decompressed.duration_ns, combine.duration_ns,
    ]  # fmt: skip


@given(launches)
def test_overlap_by_counting_every_nanosecond(found):
    depth = [sum(x.start_ns <= t < x.start_ns + x.duration_ns for x in found) for t in range(100)]
    busy = sum(d >= 1 for d in depth)
    expected = sum(d >= 2 for d in depth) / busy if busy else 0.0
    assert overlap(found) == pytest.approx(expected)


class TestParseNsys:
    def test_launches_below_the_chatter(self):
        found = parse_nsys(TRACE)
        assert found[0] == LATENT
        assert [x.stream for x in found] == [7, 13, 7, 7]

    @pytest.mark.parametrize(
        "text",
        ["Start (ns),Name\n1,k\n", "Start (ns),Duration (ns),Strm,Name\nx,1,1,k\n",
         "Start (ns),Duration (ns),Strm,Name\n1\n", "nothing\nat all\n"],
    )  # fmt: skip
    def test_another_table_is_an_error(self, text):
        with pytest.raises(ToolchainError, match="nsys printed no kernel trace"):
            parse_nsys(text)

    def test_no_launches(self):
        assert parse_nsys("Start (ns),Duration (ns),Strm,Name\n") == []


class TestParseChrome:
    def test_kernels_in_order_in_nanoseconds(self):
        trace = {
            "traceEvents": [
                {"cat": "kernel", "name": "b", "ts": 2.5, "dur": 0.25, "args": {"stream": 13}},
                {"cat": "gpu_memcpy", "name": "copy", "ts": 1, "dur": 1},
                {"cat": "kernel", "name": "a", "ts": 1, "dur": "0.5"},
            ]
        }
        assert parse_chrome(trace) == [
            Launch("a", 1000, 500, stream=0), Launch("b", 2500, 250, stream=13),
        ]  # fmt: skip

    @pytest.mark.parametrize("trace", [{}, {"traceEvents": []}])
    def test_no_kernels(self, trace):
        assert parse_chrome(trace) == []


def test_both_sources_have_one_table():
    assert parse_nsys(timeline.gpu_trace([LATENT])) == [LATENT]
    assert parse_nsys(timeline.gpu_trace([])) == []


@given(launches)
def test_a_chrome_trace_of_launches_is_read_back(found):
    ordered = sorted(found, key=lambda launch: launch.start_ns)
    assert parse_chrome(json.loads(timeline.chrome(ordered))) == ordered


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(1, 99), min_size=1)))
def test_calls_are_summed_by_name(durations):
    calls = [Event(name, 0, took) for name, all_ in durations.items() for took in all_]
    found = rows(timeline.api_sum(calls))
    assert {row["Name"]: int(row["Total Time (ns)"]) for row in found} == {
        name: sum(took) for name, took in durations.items()
    }
    for row in found:
        took = durations[row["Name"]]
        assert float(row["Med (ns)"]) == statistics.median(took)
        assert (int(row["Min (ns)"]), int(row["Max (ns)"])) == (min(took), max(took))
    totals = [int(row["Total Time (ns)"]) for row in found]
    assert totals == sorted(totals, reverse=True)


@given(launches)
def test_what_stages_share_by_counting_every_nanosecond(found):
    patterns = {"one": re.compile("a"), "two": re.compile("b")}
    got = timeline.figures(sorted(found, key=lambda x: x.start_ns), patterns)

    def ran(name):
        return {t for x in found if x.name == name for t in range(x.start_ns, x.end_ns)}

    both = len(ran("a") & ran("b"))
    for path, name in (("one", "a"), ("two", "b")):
        assert (timeline.START in got[path]) == any(x.name == name for x in found)
        assert got[path].get(timeline.SHARED, 0.0) == pytest.approx(both / 1e3)
        if own := [x for x in found if x.name == name]:
            span = max(x.end_ns for x in own) - min(x.start_ns for x in own)
            assert got[path][timeline.SPAN] == pytest.approx(span / 1e3)


def test_a_range_that_launched_nothing_is_left_out():
    calls = [Event("cudaLaunchKernel", 10, 5, 1), Event("cudaDeviceSynchronize", 40, 5, 9)]
    found = timeline.projected([Event("r", 0, 20), Event("s", 30, 20)], calls, [LATENT])
    assert [(row["Name"], row["NumGPUOps"]) for row in rows(found)] == [("r", "1")]
