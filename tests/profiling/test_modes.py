from __future__ import annotations

import dataclasses

import pytest
import torch

from mla_var3 import evidence
from mla_var3.errors import ToolchainError, UnknownNameError
from mla_var3.profiling import modes
from mla_var3.runtime import registry
from mla_var3.runtime.ct_kernel import CtKernel

VERSION = registry.find("flash_mla", "v1")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=32, p=16)
QUICK = {"bench_runs": 5, "no_autotune": True}
FOLDER = f"cutile/mla/flash_mla/v1/{PLAN.slug()}"


def test_a_run_leaves_record_and_report_and_advice(gpu, root):
    result = modes.run("event", PLAN, advise=lambda found: [f"{len(found)} record"], **QUICK)
    (record,) = result.record_paths
    assert record.parent == root / "results/nvidia-h200-sxm/cutile/mla/flash_mla"
    text = result.report.read_text()
    assert text.startswith("# flash_mla v1\n")
    assert "Measured: median 102.0 us" in text
    assert "## What to try next\n\n1. 1 record\n" in text
    assert record.name in text
    assert result.steps == ("1 record",)


def test_artefacts_may_go_elsewhere_and_so_may_records(gpu, root, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    result = modes.run("disabled", PLAN, out_dir=elsewhere, results=tmp_path / "mine")
    assert result.record_paths[0].is_relative_to(tmp_path / "mine")
    assert result.report.is_relative_to(elsewhere / "profiles/disabled" / FOLDER)


def test_a_failed_run_is_reported_without_advice(gpu, monkeypatch):
    def refuse(self):
        raise RuntimeError("launch failed")

    monkeypatch.setattr(CtKernel, "__call__", refuse)
    result = modes.run("disabled", PLAN, advise=pytest.fail)
    assert not result.ok
    assert "**Failed**: launch failed" in result.report.read_text()


@pytest.mark.parametrize("mode", ["event", "nsys"])
def test_timed_modes_need_a_gpu(mode, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ToolchainError, match=f"mode {mode} needs a CUDA GPU"):
        modes.run(mode, PLAN)


def test_modes_have_names():
    with pytest.raises(UnknownNameError, match=r"unknown mode 'evnt'.*did you mean 'event'"):
        modes.run("evnt", PLAN)


class TestDoors:
    @pytest.mark.parametrize("mode", modes.TIMED)
    def test_scripts_import_the_modes_from_runtime(self, mode):
        module = __import__(f"mla_var3.runtime.profiling.{mode}", fromlist=["x"])
        assert callable(getattr(module, f"{mode}_profile_plan"))

    def test_a_plan_runs_itself(self, gpu, monkeypatch):
        assert PLAN.benchmark_kernel().get_total_time_us() > 0
        chosen = []
        monkeypatch.setattr(torch.cuda, "device", lambda name: chosen.append(name) or _Nothing())
        PLAN.benchmark_kernel("cuda:1", prof_type="disabled")
        assert chosen == ["cuda:1"]


@dataclasses.dataclass
class _Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class TestAgain:
    """A mode that only starts from an event run's times."""

    @pytest.fixture
    def nsys(self, monkeypatch):
        from mla_var3.profiling import nsys
        from mla_var3.profiling.prologue import Observed

        monkeypatch.setattr(nsys, "_collect", lambda run: Observed({}))

    def test_what_was_measured_before_stays(self, gpu, nsys):
        modes.run("event", PLAN, **QUICK)
        before = list(evidence.find())
        modes.run("nsys", PLAN, **QUICK)
        modes.run("event", PLAN, **QUICK)
        after = list(evidence.find())
        assert [record.mode for record in after] == ["event"] * 3 + ["nsys"]
        assert all(record in after for record in before)
