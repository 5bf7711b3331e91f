from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mla_var3 import records
from mla_var3.errors import ToolchainError
from mla_var3.profiling import ncu, replay
from mla_var3.profiling.ncu import command, counters, find_ncu, ncu_profile_plan, parse_raw
from mla_var3.runtime import registry
from mla_var3.runtime.ct_kernel import CtKernel

VERSION = registry.find("mla_var6_plus")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=64, p=16, d=32, n=30)

RAW = """==PROF== Connected to process 12
"ID","Kernel Name","dram__bytes_read.sum","gpu__time_duration.sum","sm__throughput.avg.pct","x__a.sum","y__b.sum","launch__grid_size"
"","","Mbyte","us","%","","","",""
"0","mla_var6_plus_combine_Kt12","1,024.5","3.25","12.5","nan","n/a","132"
"1","mla_var6_plus_Kt3","2","1","0.5","inf","","64"
"""  # noqa: E501


class TestParse:
    def test_values_come_in_base_units(self):
        combine, attention = parse_raw(RAW)
        assert combine["Kernel Name"] == "mla_var6_plus_combine_Kt12"
        assert combine["dram__bytes_read.sum"] == pytest.approx(1024.5e6)
        assert combine["gpu__time_duration.sum"] == pytest.approx(3.25e-6)
        assert combine["sm__throughput.avg.pct"] == 12.5
        assert combine["launch__grid_size"] == 132
        assert "y__b.sum" not in attention

    def test_what_is_no_finite_number_stays_text(self):
        combine, attention = parse_raw(RAW)
        assert (combine["x__a.sum"], combine["y__b.sum"], attention["x__a.sum"]) == (
            "nan",
            "n/a",
            "inf",
        )

    @pytest.mark.parametrize(
        ("unit", "factor"),
        [
            ("nsecond", 1e-9), ("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("second", 1.0),
            ("byte", 1.0), ("Kbyte", 1e3), ("Gbyte", 1e9), ("Tbyte/second", 1e12), ("Ghz", 1.0),
            ("MHz", 1e6), ("Kinst", 1e3), ("%", 1.0), ("", 1.0),
        ],
    )  # fmt: skip
    def test_units(self, unit, factor):
        (row,) = parse_raw(f'"ID","v"\n"","{unit}"\n"0","2"\n')
        assert row["v"] == pytest.approx(2 * factor)

    def test_a_table_without_rows(self):
        assert parse_raw('"ID","v"\n') == []
        assert parse_raw('"ID","v"\n"",""\n') == []

    @pytest.mark.parametrize("text", ["", "==ERROR== permission\ndenied"])
    def test_no_table_is_an_error_with_what_was_said(self, text):
        said = " ".join(text.split())
        with pytest.raises(ToolchainError, match=f"no table of counters: {said}"):
            parse_raw(text)


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
    name = "gpu__time_duration.sum"
    rows = [{"Kernel Name": "x", name: t, "launch__grid_size": t} for t in (1.0, 3.0, 2.0)]
    assert counters(rows, re.compile("x"))["launch__grid_size"] == 3.0
    assert counters(rows, re.compile("y")) == {}


class TestProfile:
    @pytest.fixture
    def ran(self, gpu, monkeypatch):
        """Commands that were run; the second prints the table."""
        commands = []

        def run(arguments, **_kwargs):
            commands.append(list(arguments))
            return SimpleNamespace(
                returncode=0, stdout=RAW if "--import" in arguments else "", stderr=""
            )

        monkeypatch.setattr(ncu.shutil, "which", lambda name: f"/opt/{name}")
        monkeypatch.setattr(replay, "subprocess", SimpleNamespace(run=run))
        return commands

    def test_counters_go_to_their_stages(self, ran, root):
        told = []
        result = ncu_profile_plan(PLAN, no_autotune=True, bench_runs=5, progress=told.append)
        event, path = result.record_paths
        assert event.name == "event.json"
        outcome = records.read(path).outcome
        found = {s.name: s.counters for s in outcome.stages}
        assert found["attention"] == {
            "dram__bytes_read.sum": 2e6, "gpu__time_duration.sum": 1e-6,
            "sm__throughput.avg.pct": 0.5, "launch__grid_size": 64.0,
        }  # fmt: skip
        assert found["combine"]["launch__grid_size"] == 132
        assert [Path(name).name for name in outcome.artefacts] == ["counters.csv", "plan.json"]
        assert outcome.total is not None
        assert result.report.parent.parent == (
            root / f"out/profiles/ncu/cutile/mla/mla_var6_plus/v0/{PLAN.slug()}"
        )
        assert (result.report.parent / "counters.csv").read_text() == RAW
        first, second = ran
        assert first[0] == second[0] == "/opt/ncu"
        assert second[1:3] == ["--import", str(result.report.parent / "profile.ncu-rep")]
        assert any("Nsight Compute" in text for text in told)

    def test_a_failed_run_is_not_profiled(self, ran, monkeypatch):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result = ncu_profile_plan(PLAN, version=VERSION, no_autotune=True)
        assert result.record.mode == "event"
        assert isinstance(result.record.outcome, records.Failed)
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
