from __future__ import annotations

import csv
import io
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import records
from mla_var3.errors import ToolchainError
from mla_var3.profiling import nsys, replay
from mla_var3.profiling.nsys import (
    Launch,
    nsys_profile_plan,
    overlap,
    parse_chrome,
    parse_nsys,
    to_csv,
)
from mla_var3.runtime import registry
from mla_var3.runtime.ct_kernel import CtKernel

VERSION = registry.find("mla_var6_plus", "v4")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=64, p=16, d=32, n=30)

TRACE = """Processing [x.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,Strm,Name
100,50,1,132,7,mla_var6_plus_v4_latent_Kt1
120,50,2,132,13,mla_var6_plus_v4_decompressed_Kt1
180,20,3,16,7,mla_var6_plus_combine_Kt1
300,20,4,16,7,other
"""
LATENT = Launch("mla_var6_plus_v4_latent_Kt1", 100, 50, 7)

launches = st.lists(
    st.builds(
        Launch, name=st.just("k"), start_ns=st.integers(0, 60), duration_ns=st.integers(0, 30),
        stream=st.just(0),
    ),
    max_size=8,
)  # fmt: skip


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
        assert parse_chrome(trace) == [Launch("a", 1000, 500, 0), Launch("b", 2500, 250, 13)]

    @pytest.mark.parametrize("trace", [{}, {"traceEvents": []}])
    def test_no_kernels(self, trace):
        assert parse_chrome(trace) == []


def test_both_sources_have_one_table():
    rows = list(csv.DictReader(io.StringIO(to_csv([LATENT]))))
    assert rows == [
        {"name": LATENT.name, "start_ns": "100", "duration_ns": "50", "stream": "7"}
    ]  # fmt: skip
    assert to_csv([]) == "name,start_ns,duration_ns,stream\n"


class TestProfile:
    def check(self, result, collector, root, *files):
        event, path = result.record_paths
        made = records.read(path)
        assert event.name == "event.json"
        assert made.toolchain["timeline"] == collector
        # 100-150 and 120-170 share 30 of the 90 ns in which a kernel runs.
        shares = {s.counters["timeline__overlap_fraction"] for s in made.outcome.stages}
        assert shares == {round(30 / 90, 4)}
        folder = result.report.parent
        assert folder.is_relative_to(root / "out/profiles/nsys/cutile/mla/mla_var6_plus/v4")
        assert sorted(p.name for p in result.files) == sorted(["timeline.csv", *files])
        table = (folder / "timeline.csv").read_text()
        assert "other" not in table
        assert len(table.splitlines()) == 4

    def test_with_nsys(self, gpu, monkeypatch, root):
        commands = []

        def run(arguments, **_kwargs):
            commands.append(arguments)
            return SimpleNamespace(returncode=0, stdout=TRACE, stderr="")

        monkeypatch.setattr(nsys.shutil, "which", lambda _: "/opt/nsys")
        monkeypatch.setattr(replay, "subprocess", SimpleNamespace(run=run))
        result = nsys_profile_plan(PLAN, version="mla_var6_plus v4", no_autotune=True)
        self.check(result, "nsys", root, "plan.json")
        profile, stats = commands
        assert profile[:2] == ["/opt/nsys", "profile"]
        assert profile[-1] == str(result.report.parent / "plan.json")
        assert stats[:2] == ["/opt/nsys", "stats"]
        assert stats[-1] == str(result.report.parent / "profile.nsys-rep")

    def test_with_cupti_where_nsys_is_missing(self, gpu, monkeypatch, root):
        events = [
            {"cat": "kernel", "name": x.name, "ts": x.start_ns / 1e3, "dur": x.duration_ns / 1e3,
             "args": {"stream": x.stream}}
            for x in parse_nsys(TRACE)
        ]  # fmt: skip
        ran = []

        class Profiler:
            def __init__(self, activities):
                self.before = len(ran)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                assert len(ran) > self.before

            def export_chrome_trace(self, path):
                with open(path, "w") as file:
                    json.dump({"traceEvents": events}, file)

        call = CtKernel.__call__
        monkeypatch.setattr(CtKernel, "__call__", lambda self: ran.append(self) or call(self))
        monkeypatch.setattr(nsys.shutil, "which", lambda _: None)
        monkeypatch.setattr(nsys.torch.profiler, "profile", Profiler)
        told = []
        result = nsys_profile_plan(PLAN, version=VERSION, no_autotune=True, progress=told.append)
        self.check(result, "cupti", root, "trace.json")
        assert any("CUPTI" in text for text in told)

    def test_nsyss_refusal_is_one_sentence(self, gpu, monkeypatch, root):
        failed = SimpleNamespace(returncode=1, stdout="", stderr="no\nlicence")
        monkeypatch.setattr(nsys.shutil, "which", lambda _: "/opt/nsys")
        monkeypatch.setattr(replay, "subprocess", SimpleNamespace(run=lambda *_, **__: failed))
        with pytest.raises(ToolchainError, match="nsys ended with code 1: no licence"):
            nsys_profile_plan(PLAN, version=VERSION, no_autotune=True)
        assert not list(root.glob("results/**/nsys.json"))

    def test_a_failed_run_is_not_profiled(self, gpu, monkeypatch):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result = nsys_profile_plan(PLAN, version=VERSION, no_autotune=True)
        assert isinstance(result.record.outcome, records.Failed)
        assert len(result.record_paths) == 1
