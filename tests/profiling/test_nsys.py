from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from mla_var3 import evidence
from mla_var3.errors import ToolchainError
from mla_var3.profiling import nsys, replay, timeline
from mla_var3.profiling.nsys import nsys_profile_plan
from mla_var3.profiling.timeline import parse_nsys
from mla_var3.runtime import registry
from mla_var3.runtime.ct_kernel import CtKernel
from tests.profiling.test_timeline import TRACE

VERSION = registry.find("mla_var6_plus", "v4")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=64, p=16, d=32, n=30)
#: A first run whose kernels follow each other, then the replay whose kernels overlap.
FIRST = parse_nsys(
    """Start (ns),Duration (ns),CorrId,Strm,Name
10,20,5,7,latent_Kt1
40,20,6,13,decompressed_Kt1
70,20,7,7,combine_Kt1
"""
)
TRACED = [*FIRST, *parse_nsys(TRACE)]


class TestNamed:
    class Stage:
        def __init__(self):
            self.said = []

        def launch(self):
            self.said.append("launch")

    def test_each_launch_lies_in_a_range_of_its_stage(self):
        stage = self.Stage()
        obj = SimpleNamespace(stages=lambda: [("a.b", stage)])

        @contextlib.contextmanager
        def within(name):
            stage.said.append(name)
            yield
            stage.said.append("end")

        with nsys.named(obj, within):
            stage.launch()
        stage.launch()
        assert stage.said == ["a.b", "launch", "end", "launch"]

    def test_a_failing_launch_leaves_the_kernel_as_it_was(self):
        stage = self.Stage()
        obj = SimpleNamespace(stages=lambda: [("a", stage)])
        with pytest.raises(RuntimeError), nsys.named(obj, contextlib.nullcontext):
            raise RuntimeError
        assert "launch" not in vars(stage)


class TestProfile:
    def check(self, result, collector, root, *files):
        event, made = (evidence.records_of(path)[-1] for path in result.record_paths)
        assert (event.mode, made.mode) == ("event", "nsys")
        assert event.run == made.run
        assert made.toolchain["timeline"] == collector
        # 100-150 and 120-170 share 30 of the 90 ns in which a kernel runs.
        found = {s.name: s.counters for s in made.outcome.stages}
        assert {x[timeline.OVERLAP] for x in found.values()} == {round(30 / 90, 4)}
        latent, decompressed, combine = found.values()
        assert latent[timeline.SHARED] == decompressed[timeline.SHARED] == 0.03
        assert (combine[timeline.START], combine[timeline.SHARED]) == (0.08, 0.0)
        assert decompressed[timeline.STREAM] == 13
        folder = result.report.parent
        assert folder.is_relative_to(root / "out/profiles/nsys/cutile/mla/mla_var6_plus/v4")
        names = [str(p.relative_to(folder)) for p in result.files]
        assert names == sorted([
            "chrome_trace.json", "stats/profile_cuda_api_sum.csv",
            "stats/profile_cuda_gpu_trace.csv", "stats/profile_nvtx_gpu_proj_trace.csv", *files,
        ])  # fmt: skip
        report = result.report.read_text()
        assert "Two kernels or more ran at once for 33.3% of the time" in report
        assert "| combine | 7 | 0.1 | 0.0 | 0.0 |" in report
        events = json.loads((folder / "chrome_trace.json").read_text())["traceEvents"]
        assert "other" in {event["name"] for event in events}

    def test_with_nsys(self, gpu, monkeypatch, root):
        commands = []

        def run(arguments, **_kwargs):
            commands.append(arguments)
            for name in nsys.TABLES if arguments[1] == "stats" else ():
                base = next(x for x in arguments if x.startswith("--output="))
                text = timeline.gpu_trace(TRACED) if name == "cuda_gpu_trace" else ""
                Path(f"{base.removeprefix('--output=')}_{name}.csv").write_text(text)
            return SimpleNamespace(returncode=0, stdout="", stderr="")

        monkeypatch.setattr(nsys.shutil, "which", lambda _: "/opt/nsys")
        monkeypatch.setattr(replay, "subprocess", SimpleNamespace(run=run))
        result = nsys_profile_plan(PLAN, version="mla_var6_plus v4", no_autotune=True)
        self.check(result, "nsys", root, "plan.json")
        profile, stats = commands
        assert profile[:2] == ["/opt/nsys", "profile"]
        assert profile[-3:-1] == ["-m", "mla_var3.profiling.nsys"]
        assert profile[-1] == str(result.report.parent / "plan.json")
        assert "--cuda-graph-trace=node" in profile
        assert stats[:2] == ["/opt/nsys", "stats"]
        assert stats[-1] == str(result.report.parent / "profile.nsys-rep")

    def test_with_cupti_where_nsys_is_missing(self, gpu, monkeypatch, root):
        events = [
            {"cat": "kernel", "name": x.name, "ts": x.start_ns / 1e3, "dur": x.duration_ns / 1e3,
             "args": {"stream": x.stream, "correlation": x.correlation}}
            for x in TRACED
        ]  # fmt: skip
        call = {"ts": 0.001, "dur": 0.002}
        events += [
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": 5}, **call},
            {"cat": "user_annotation", "name": "attention.latent", **call},
        ]
        ran = []

        class Profiler:
            def __init__(self, activities):
                self.before = len(ran)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                assert len(ran) == self.before + 2 * len(list(PLAN.tiling_types))

            def export_chrome_trace(self, path):
                with open(path, "w") as file:
                    json.dump({"traceEvents": events}, file)

        run = CtKernel.__call__
        monkeypatch.setattr(CtKernel, "__call__", lambda self: ran.append(self) or run(self))
        monkeypatch.setattr(nsys, "capture", lambda body: SimpleNamespace(replay=body))
        monkeypatch.setattr(nsys.shutil, "which", lambda _: None)
        monkeypatch.setattr(nsys.torch.profiler, "profile", Profiler)
        told = []
        result = nsys_profile_plan(PLAN, version=VERSION, no_autotune=True, progress=told.append)
        self.check(result, "cupti", root)
        folder = result.report.parent / "stats"
        (row,) = csv.DictReader(
            io.StringIO((folder / "profile_nvtx_gpu_proj_trace.csv").read_text())
        )
        assert (row["Name"], row["Projected Duration (ns)"]) == ("attention.latent", "20")
        assert "cudaLaunchKernel" in (folder / "profile_cuda_api_sum.csv").read_text()
        assert any("CUPTI" in text for text in told)

    def test_nsyss_refusal_is_one_sentence(self, gpu, monkeypatch, root):
        failed = SimpleNamespace(returncode=1, stdout="", stderr="no\nlicence")
        monkeypatch.setattr(nsys.shutil, "which", lambda _: "/opt/nsys")
        monkeypatch.setattr(replay, "subprocess", SimpleNamespace(run=lambda *_, **__: failed))
        with pytest.raises(ToolchainError, match="nsys ended with code 1: no licence"):
            nsys_profile_plan(PLAN, version=VERSION, no_autotune=True)
        assert "nsys" not in {r.mode for r in evidence.find(root / "results")}

    def test_a_failed_run_is_not_profiled(self, gpu, monkeypatch):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result = nsys_profile_plan(PLAN, version=VERSION, no_autotune=True)
        assert isinstance(result.record.outcome, evidence.Failed)
        assert len(result.record_paths) == 1
