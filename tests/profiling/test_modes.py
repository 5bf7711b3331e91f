from __future__ import annotations

import pytest

from mla_var3 import records
from mla_var3.app.options import RunOptions
from mla_var3.errors import ToolchainError
from mla_var3.profiling import modes
from mla_var3.runtime import CtKernel, registry

VERSION = registry.find("flash_mla", "v1")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=32, p=16)


def profile(mode: str, **options) -> modes.ModeResult:
    return modes.profile(VERSION, PLAN, RunOptions(**options), mode, lambda _: None)


def test_event_leaves_record_and_report(gpu, root):
    result = profile("event", bench_runs=5, no_autotune=True)
    assert result.ok
    record, report = result.paths
    assert record == root / f"results/nvidia-h200-sxm/flash_mla/v1/{PLAN.slug()}/event.json"
    assert report == root / "out/flash_mla/v1/event/report.md"
    text = report.read_text()
    assert text.startswith("# flash_mla v1\n")
    assert "Measured: median 102.0 us" in text
    assert str(record) in text
    assert "Measured: median 102.0 us" in result.summary


@pytest.mark.parametrize("check", [True, False])
def test_disabled_checks_on_demand(gpu, check):
    assert profile("disabled", check=check).ok
    (record,) = records.find(mode="disabled")
    assert (record.outcome.correctness is not None) == check


def test_artefacts_may_go_elsewhere_but_records_do_not(gpu, root, tmp_path):
    result = profile("disabled", out_dir=tmp_path / "elsewhere")
    assert result.paths[0].is_relative_to(root / "results")
    assert result.paths[1] == tmp_path / "elsewhere/flash_mla/v1/disabled/report.md"


def test_a_failed_run_is_reported_and_not_ok(gpu, monkeypatch):
    def refuse(self):
        raise RuntimeError("launch failed")

    monkeypatch.setattr(CtKernel, "__call__", refuse)
    result = profile("disabled")
    assert not result.ok
    assert "**Failed**: launch failed" in result.paths[1].read_text()


@pytest.mark.parametrize("mode", ["disabled", *modes.TIMED])
def test_every_mode_needs_a_gpu(mode, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ToolchainError, match=f"mode {mode} needs a CUDA GPU"):
        profile(mode)
