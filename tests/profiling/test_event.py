from __future__ import annotations

import dataclasses
import json

import cuda.tile as ct
import pytest
import torch
from factories import duration, passed, record

from mla_var3 import devices, evidence
from mla_var3.errors import DeviceFigureError, PlanError, ToolchainError, UnknownNameError
from mla_var3.profiling import recording, running
from mla_var3.profiling.disabled import disabled_profile_plan
from mla_var3.profiling.event import event_profile_plan
from mla_var3.profiling.settings import ProfileResult
from mla_var3.runtime import autotune, registry, waiting
from mla_var3.runtime.ct_kernel import CtKernel

SMALL = {"b": 1, "h": 16, "s": 2, "t": 70}
FLASH_MLA = registry.find("flash_mla", "v1")
VAR6 = registry.find("mla_var6_plus", "v4")


def flash_mla(**fields):
    return FLASH_MLA.plan_class()(**{**SMALL, "k": 32, "p": 16, **fields})


def var6(**fields):
    return VAR6.plan_class()(**{**SMALL, "k": 64, "p": 16, "d": 32, "n": 30, **fields})


def broken(monkeypatch, error):
    def refuse(self):
        raise error

    monkeypatch.setattr(CtKernel, "__call__", refuse)


class TestEvent:
    def test_one_kernel_is_checked_then_timed_once(self, gpu, root):
        told = []
        result = event_profile_plan(
            flash_mla(), version="flash_mla v1", bench_runs=5, no_autotune=True,
            progress=told.append, label="x",
        )  # fmt: skip
        (path,) = result.record_paths
        folder = f"cutile/mla/flash_mla/v1/{flash_mla().slug()}"
        assert path.parent == root / "results/nvidia-h200-sxm/cutile/mla/flash_mla"
        assert result.report.parent.parent == root / f"out/profiles/event/{folder}"
        made = evidence.records_of(path)[-1]
        assert made.facts() == result.record.facts()
        outcome = made.outcome
        assert outcome.correctness.status == "passed"
        assert outcome.correctness.against == "torch fp32 on the same GPU"
        assert outcome.total == duration(1).model_copy(
            update={"median_us": 102.0, "min_us": 100.0, "max_us": 104.0, "samples": 5}
        )
        assert outcome.stages[0].duration == outcome.total
        assert outcome.protocol.timer == "fake"
        assert result.get_total_time_us() == 102.0
        assert len(gpu.timed) == 1
        assert gpu.synchronised == 1
        assert told == ["x: checking against the reference", "x: timing 5 runs"]
        assert "torch" in made.toolchain

    def test_stages_are_timed_each_and_whole(self, gpu):
        result = event_profile_plan(var6(), version=VAR6, no_autotune=True, check=False)
        outcome = result.record.outcome
        assert [s.name for s in outcome.stages] == [
            "attention.latent",
            "attention.decompressed",
            "combine",
        ]
        medians = [outcome.total.median_us, *(s.duration.median_us for s in outcome.stages)]
        assert medians == [124.5, 224.5, 324.5, 424.5]
        assert outcome.correctness is None
        assert gpu.synchronised == 0

    def test_tuned_tilings_are_kept_for_the_next_run(self, gpu):
        first = event_profile_plan(flash_mla(), version=FLASH_MLA, tune_max_iters=3)
        # Times count up, so that the first of the three tilings is the fastest.
        assert len(gpu.timed) == 3 + 1
        stored = autotune.load(FLASH_MLA, flash_mla(), "nvidia-h200-sxm")
        assert stored == {"attention": flash_mla().default_tiling("attention")}
        tried = autotune.history(FLASH_MLA, flash_mla(), "nvidia-h200-sxm")
        assert [(t["run"], t["stage"]) for t in tried] == [(recording.RUN, "attention")] * 3
        event_profile_plan(flash_mla(), version=FLASH_MLA, tune_max_iters=3)
        assert len(gpu.timed) == 4 + 1
        event_profile_plan(flash_mla(), version=FLASH_MLA, tune_max_iters=3, retune=True)
        assert len(gpu.timed) == 5 + 4
        assert first.record.outcome.stages[0].tiling["tile_m"] == 64

    def test_the_tuned_tiling_is_the_one_timed_and_recorded(self, gpu, monkeypatch):
        def backwards(obj, plan, measure, **_kwargs):
            ((_, kernel),) = obj.stages()
            kernel.tiling = dataclasses.replace(kernel.tiling, tile_n=32)
            return {kernel.name: []}

        monkeypatch.setattr(autotune, "tune", backwards)
        result = event_profile_plan(flash_mla(), version=FLASH_MLA)
        assert result.record.outcome.stages[0].tiling["tile_n"] == 32
        (timed,) = gpu.timed
        assert timed.tiling.tile_n == 32

    def test_a_tiling_of_the_users_is_not_tuned(self, gpu):
        fixed = {"attention": dataclasses.replace(flash_mla().tiling("attention"), tile_m=16)}
        result = event_profile_plan(flash_mla(tilings=fixed), version=FLASH_MLA)
        assert result.record.outcome.stages[0].tiling["tile_m"] == 16
        assert len(gpu.timed) == 1

    def test_open_sizes_are_resolved_for_the_gpu(self, gpu):
        result = event_profile_plan(var6(n=None), version=VAR6, no_autotune=True, check=False)
        assert result.record.problem["n"] is not None

    def test_a_wrong_kernel_is_a_failed_record_and_not_timed(self, gpu, monkeypatch):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result = event_profile_plan(flash_mla(), version=FLASH_MLA, no_autotune=True)
        outcome = evidence.records_of(result.paths[0])[-1].outcome
        assert isinstance(outcome, evidence.Failed)
        assert outcome.error.startswith("o: relative error nan")
        assert outcome.correctness.status == "failed"
        assert outcome.correctness.max_relative_error is None
        assert not gpu.timed
        with pytest.raises(ToolchainError, match="the run failed: o: relative error"):
            result.get_total_time_us()
        json.loads(result.paths[0].read_text(), parse_constant=pytest.fail)

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (torch.OutOfMemoryError("CUDA out of memory.\nTried ..."), "CUDA out of memory."),
            (ct.TileError("no tile"), "no tile"),
            (RuntimeError(), "RuntimeError"),
        ],
    )
    def test_what_the_gpu_refuses_is_a_failed_record(self, gpu, monkeypatch, error, said):
        broken(monkeypatch, error)
        result = event_profile_plan(flash_mla(), version=FLASH_MLA, no_autotune=True)
        assert evidence.records_of(result.paths[0])[-1].outcome == evidence.Failed(error=said)

    def test_an_interrupt_leaves_no_record(self, gpu, root, monkeypatch):
        broken(monkeypatch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            event_profile_plan(flash_mla(), version=FLASH_MLA, no_autotune=True)
        assert not list(root.glob("**/*.json"))

    def test_bad_input_is_refused_and_leaves_no_record(self, gpu, root):
        with pytest.raises(PlanError, match="b=0 is below 1"):
            event_profile_plan(flash_mla(b=0), version=FLASH_MLA)
        with pytest.raises(UnknownNameError):
            event_profile_plan(flash_mla(), version="flash_mla v99")
        assert not list(root.glob("**/*.json"))


class TestDisabled:
    def test_with_check(self, gpu):
        result = disabled_profile_plan(flash_mla(), version=FLASH_MLA)
        assert result.record.mode == "disabled"
        assert result.record.outcome.correctness.status == "passed"
        assert result.record.outcome.total is None
        with pytest.raises(ToolchainError, match="a run in mode disabled measures no time"):
            result.get_total_time_us()

    def test_without_check_the_kernels_run_and_nothing_else(self, gpu, root, monkeypatch):
        ran = []
        monkeypatch.setattr(CtKernel, "__call__", lambda self: ran.append(self.name))
        result = disabled_profile_plan(flash_mla(), version=FLASH_MLA, check=False)
        assert ran == ["attention"]
        assert gpu.synchronised == 1
        assert result.record.outcome.correctness is None
        assert result.paths == ()
        assert not [p for p in root.rglob("*") if p.is_file()]

    def test_on_a_cpu_it_is_checked_small_and_recorded_as_such(self, root, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        told = []
        result = disabled_profile_plan(
            FLASH_MLA.plan_class()(k=32, p=16), check=False, progress=told.append
        )
        (path,) = result.record_paths
        made = evidence.records_of(path)[-1]
        assert (made.target, made.mode, made.device) == ("cpu", "disabled", None)
        assert path.is_relative_to(root / "results/cpu/cutile/mla/flash_mla")
        assert made.outcome.correctness.cases[0].problem == made.problem
        assert made.problem["t"] == 200
        assert told == [f"no GPU: checking flash_mla v1 on the CPU at {made.slug}"]

    def test_a_wrong_kernel_fails_on_a_cpu_too(self, root, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result = disabled_profile_plan(flash_mla())
        assert not result.ok
        assert "**Failed**: o: relative error nan" in result.report.read_text()

    def test_a_wrong_kernel_fails(self, gpu, monkeypatch):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result = disabled_profile_plan(flash_mla(), version=FLASH_MLA)
        assert isinstance(result.record.outcome, evidence.Failed)

    def test_stored_tilings_are_not_used(self, gpu):
        autotune.save(
            FLASH_MLA, flash_mla(), "nvidia-h200-sxm",
            {"attention": dataclasses.replace(flash_mla().tiling("attention"), tile_n=32)},
        )  # fmt: skip
        result = disabled_profile_plan(flash_mla(), version=FLASH_MLA)
        assert result.record.outcome.stages[0].tiling["tile_n"] == 64


def test_a_gpu_whose_rates_are_unknown_is_refused(gpu, monkeypatch):
    def unknown(*_):
        raise DeviceFigureError("UNKNOWN")

    monkeypatch.setattr(devices.Device, "ceilings", unknown)
    with pytest.raises(DeviceFigureError, match="UNKNOWN"):
        disabled_profile_plan(flash_mla(), version=FLASH_MLA)


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ToolchainError, match=r"mode event needs a CUDA GPU.*--prof_type=static"):
        event_profile_plan(flash_mla(), version=FLASH_MLA)


def test_the_version_is_found_by_the_plan(gpu):
    made = event_profile_plan(flash_mla(), no_autotune=True, check=False).record
    assert (made.kernel.design, made.kernel.version) == ("flash_mla", "v1")


def test_no_run_overwrites_anothers_folder(gpu):
    runs = [event_profile_plan(flash_mla(), no_autotune=True, check=False) for _ in range(3)]
    assert len({run.report for run in runs}) == 3
    assert all(run.report.is_file() for run in runs)


def test_a_tiling_that_the_compiler_refuses_is_not_taken(gpu, monkeypatch):
    call = CtKernel.__call__

    class Timer(running.Timer):
        def samples_us(self, body, runs=None):
            body()
            return super().samples_us(body, runs)

    def refuse(self):
        if self.tiling.tile_m == 64:
            raise ct.TileError("too large")
        return call(self)

    monkeypatch.setattr(running, "Timer", Timer)
    monkeypatch.setattr(CtKernel, "__call__", refuse)
    result = event_profile_plan(flash_mla(), check=False, tune_max_iters=4)
    assert result.record.outcome.stages[0].tiling["tile_m"] == 16


def test_the_total_is_the_records():
    assert ProfileResult((record(outcome=passed(total=duration(7.0))),)).get_total_time_us() == 7.0


@pytest.mark.gpu
class TestOnAGpu:
    VERSION = registry.find("flash_mla", "v2")
    PLAN = VERSION.plan_class()(b=2, h=16, s=2, t=300, causal=True)

    def test_event(self, root):
        result = event_profile_plan(self.PLAN, version=self.VERSION, bench_runs=5, tune_max_iters=2)
        outcome = evidence.records_of(result.paths[0])[-1].outcome
        assert outcome.correctness.status == "passed", outcome
        assert 1.0 < result.get_total_time_us() < 1e5

    @pytest.mark.parametrize(
        "version", ["flash_mla v2", "mla_var6_plus v4", "flash_mla_split_kv v1"]
    )
    def test_disabled_with_check(self, version, root):
        found = registry.find(*version.split())
        plan = found.plan_class()(b=2, h=16, s=4, t=500, causal=True)
        outcome = disabled_profile_plan(plan, version=found).record.outcome
        assert outcome.status == "passed", outcome


def test_what_the_driver_gives_differs_by_mode_alone(gpu):
    assert event_profile_plan(flash_mla(), no_autotune=True).record.mode == "event"
    assert disabled_profile_plan(flash_mla()).record.mode == "disabled"


def test_a_hung_launch_leaves_a_failed_record(gpu, root, monkeypatch):
    def hang():
        for say in waiting._last_words:
            say("a launch has not ended after 1 s")
        raise SystemExit(1)  # What ends the process there.

    monkeypatch.setattr(waiting, "synchronize", hang)
    with pytest.raises(SystemExit):
        event_profile_plan(flash_mla(), version="flash_mla v1", no_autotune=True)
    (path,) = root.glob("results/**/*.json")
    assert evidence.records_of(path)[-1].outcome.error == "a launch has not ended after 1 s"
    assert waiting._last_words == []
