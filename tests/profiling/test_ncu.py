from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mla_var3 import evidence
from mla_var3.errors import ToolchainError
from mla_var3.profiling import ncu, replay
from mla_var3.profiling.ncu import (
    REPORT,
    command,
    counters,
    find_ncu,
    longest,
    ncu_profile_plan,
    with_sources,
)
from mla_var3.profiling.ncu_rep import Metric, Profiled
from mla_var3.runtime import registry
from mla_var3.runtime.ct_kernel import CtKernel
from tests.profiling import reports

VERSION = registry.find("mla_var6_plus")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=64, p=16, d=32, n=30)


def launch(name: str, ns: float, **more: float) -> Profiled:
    """A launch that took so many nanoseconds."""
    metrics = [Metric(k, v, "byte" if "bytes" in k else "") for k, v in more.items()]
    return Profiled(name, (Metric("gpu__time_duration.sum", ns, "ns"), *metrics))


LAUNCHES = [
    launch("combine_Kt12", 3250.0, launch__grid_size=132.0),
    launch("attention_Kt3", 1000.0, **{"dram__bytes_read.sum": 2e6, "launch__grid_size": 64.0}),
    launch("something_else", 9.0),
]


def test_the_counters_of_an_h200_as_its_record_keeps_them():
    found = counters(reports.gemm())
    assert len(found) == 47
    assert found["gpu__time_duration.sum"] == pytest.approx(6.272e-6)
    assert found["dram__bytes_read.sum"] == 1057280.0
    assert found["launch__registers_per_thread"] == 154.0


def test_text_is_no_counter():
    found = counters(Profiled("k", (Metric("launch__stack_size", "n/a"), Metric("other", 1.0))))
    assert found == {}


def test_the_command_profiles_only_the_plans_kernels_and_leaves_the_clocks_alone(monkeypatch):
    monkeypatch.setattr(ncu.shutil, "which", lambda name: f"/opt/{name}")
    patterns = [re.compile(x) for x in (r"a(_Kt|$)", r"b\.c", r"a(_Kt|$)")]
    found = command(Path("r.ncu-rep"), patterns, Path("plan.json"))
    assert "--clock-control none" in " ".join(found)
    assert found[-4:] == [sys.executable, "-m", "mla_var3.profiling.replay", "plan.json"]
    pattern = found[found.index("--kernel-name") + 1].removeprefix("regex:")
    assert pattern == r"^(a(_Kt|$)|b\.c)"
    assert re.match(pattern, "a_Kt12")
    assert not re.match(pattern, "a_combine")


def test_a_stage_of_several_launches_shows_the_longest():
    found = [launch("x", t) for t in (1.0, 3.0, 2.0)]
    assert longest(found, re.compile("x")) == found[1]
    assert longest(found, re.compile("y")) is None


class TestProfile:
    @pytest.fixture
    def ran(self, gpu, monkeypatch):
        """Commands that were run; the report then holds the launches."""
        commands = []

        def run(arguments, **_kwargs):
            commands.append(list(arguments))
            return SimpleNamespace(returncode=0, stdout="", stderr="")

        monkeypatch.setattr(ncu.shutil, "which", lambda name: f"/opt/{name}")
        monkeypatch.setattr(replay, "subprocess", SimpleNamespace(run=run))
        monkeypatch.setattr(ncu.ncu_rep, "missing", lambda: None)
        monkeypatch.setattr(ncu.ncu_rep, "read", lambda path: LAUNCHES)
        return commands

    def test_counters_go_to_their_stages(self, ran, root):
        told = []
        result = ncu_profile_plan(PLAN, no_autotune=True, bench_runs=5, progress=told.append)
        (path,) = result.record_paths
        assert [r.mode for r in evidence.records_of(path)] == ["event", "ncu"]
        outcome = evidence.records_of(path)[-1].outcome
        found = {s.name: s.counters for s in outcome.stages}
        assert found["attention"] == pytest.approx({
            "dram__bytes_read.sum": 2e6, "gpu__time_duration.sum": 1e-6, "launch__grid_size": 64.0,
        })  # fmt: skip
        assert found["combine"]["launch__grid_size"] == 132
        names = ["/".join(Path(name).parts[-2:]) for name in outcome.artefacts]
        assert [name.split("/", 1)[1] for name in names] == [
            "ncu-details.csv", "ncu-details.csv", "plan.json", "report-verbose.md",
        ]  # fmt: skip
        assert names[:2] == ["attention/ncu-details.csv", "combine/ncu-details.csv"]
        assert outcome.total is not None
        assert result.report.parent.parent == (
            root / f"out/profiles/ncu/cutile/mla/mla_var6_plus/v0/{PLAN.slug()}"
        )
        text = (result.report.parent / "report-verbose.md").read_text()
        assert text.index("## attention") < text.index("## combine")
        (command,) = ran
        assert command[0] == "/opt/ncu"
        assert command[command.index("--export") + 1] == str(result.report.parent / REPORT)
        assert any("Nsight Compute" in text for text in told)

    def test_a_failed_run_is_not_profiled(self, ran, monkeypatch):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result = ncu_profile_plan(PLAN, version=VERSION, no_autotune=True)
        assert result.record.mode == "event"
        assert isinstance(result.record.outcome, evidence.Failed)
        assert not ran

    @pytest.mark.parametrize(("stdout", "stderr"), [("no\npermission", ""), ("x", "no permission")])
    def test_ncus_refusal_is_one_sentence(self, ran, monkeypatch, stdout, stderr, root):
        failed = SimpleNamespace(returncode=9, stdout=stdout, stderr=stderr)
        monkeypatch.setattr(replay, "subprocess", SimpleNamespace(run=lambda *_, **__: failed))
        with pytest.raises(ToolchainError, match="ncu ended with code 9: no permission"):
            ncu_profile_plan(PLAN, version=VERSION, no_autotune=True, check=False)
        assert not list(root.glob("results/**/ncu.json"))


def test_without_ncu_it_says_so(monkeypatch):
    monkeypatch.setattr(ncu.shutil, "which", lambda _: None)
    with pytest.raises(ToolchainError, match="needs Nsight Compute's command ncu on PATH"):
        find_ncu()
    with pytest.raises(ToolchainError, match="ncu on PATH"):
        ncu_profile_plan(PLAN, version=VERSION)


def test_sources_that_the_report_lacks_are_those_of_the_version():
    gemm = registry.find("hopper_gemm", "v1")
    bare = dataclasses.replace(reports.gemm(), sources=None)
    # The report is of a time when the version had a helper of its own, which is gone.
    assert set(with_sources(bare, gemm).sources) == {"hopper_gemm_v1.py"}
    whole = with_sources(reports.gemm(), gemm)
    assert whole.sources["hopper_gemm_v1.py"] == reports.gemm().sources["hopper_gemm_v1.py"]
    assert with_sources(Profiled("k", ()), gemm).sources == {}


def test_without_its_reader_nothing_is_timed(monkeypatch):
    monkeypatch.setattr(ncu.shutil, "which", lambda name: f"/opt/{name}")
    monkeypatch.setattr(ncu.ncu_rep, "missing", lambda: "it is not there")
    with pytest.raises(ToolchainError, match="mode ncu cannot read its own report: it is not"):
        ncu_profile_plan(PLAN, version=VERSION)
