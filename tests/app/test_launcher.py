from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from mla_var3.app import launcher
from mla_var3.app.options import RunOptions
from mla_var3.errors import (
    DeviceFigureError,
    PlanError,
    ToolchainError,
    UnknownNameError,
    UsageError,
)
from mla_var3.profiling import modes, static_profile
from mla_var3.runtime import registry

VERSION = registry.find("flash_mla")
PLAN = VERSION.plan_class()()


@pytest.fixture
def profiled(monkeypatch, tmp_path):
    """Calls of the static profile, which writes nothing here."""
    calls = []

    def fake(plan, **kwargs):
        kwargs.pop("progress")("compiling [x]")
        calls.append(kwargs)
        return SimpleNamespace(
            records=(), record_paths=(tmp_path / "r.json",), report=tmp_path / "report.md",
            ok=kwargs["archs"] != ("sm_120",),
        )  # fmt: skip

    monkeypatch.setattr(static_profile, "static_profile_plan", fake)
    monkeypatch.setattr(static_profile, "next_steps", lambda _: [])
    monkeypatch.setattr("mla_var3.profiling.report.render", lambda *_args, **_: "# summary")
    return calls


def run(**options) -> int:
    return launcher.run(VERSION, PLAN, RunOptions(**options))


def test_static_is_the_default_without_a_gpu(profiled, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(launcher.torch.cuda, "is_available", lambda: False)
    assert run() == 0
    assert profiled[0]["archs"] == static_profile.DEFAULT_ARCHS
    assert profiled[0]["device"] is None
    out = capsys.readouterr().out
    assert "compiling [x]" in out
    assert f"wrote {tmp_path}/report.md" in out


def test_on_a_terminal_the_width_is_its_own(profiled, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert run(prof_type="static") == 0
    assert "compiling" in capsys.readouterr().out


def test_annotation_is_the_default_with_a_gpu(monkeypatch, capsys):
    seen = []

    def fake(version, plan, options, mode, progress):
        seen.append(mode)
        progress("timing")
        return modes.ModeResult("# all", (Path.cwd() / "results/x.json",), ok=len(seen) == 1)

    monkeypatch.setattr(launcher.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(modes, "profile", fake)
    assert run() == 0
    assert run(prof_type="event") == 1
    assert seen == ["annotation", "event"]
    out = capsys.readouterr().out
    assert "· timing" in out
    assert "wrote results/x.json" in out


def test_a_failed_kernel_is_1(profiled):
    assert run(prof_type="static", arch="sm_120") == 1


def test_a_device_brings_its_arch(profiled):
    run(prof_type="static", device="nvidia-b200")
    run(prof_type="static", device="NVIDIA H200", arch="sm_90,sm_100")
    assert profiled[0]["archs"] == ("sm_100",)
    assert profiled[0]["device"].key == "nvidia-b200"
    assert profiled[1]["archs"] == ("sm_90", "sm_100")


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"device": "nvidia-b2000"}, UnknownNameError, "did you mean 'nvidia-b200'"),
        ({"arch": "sm_91"}, UnknownNameError, "unknown arch 'sm_91'"),
        ({"arch": "sm_90,hopper"}, UnknownNameError, "unknown arch 'hopper'"),
        ({"arch": ""}, UnknownNameError, "unknown arch ''"),
        ({"device": "nvidia-b200", "arch": "sm_90"}, PlanError,
         "--device nvidia-b200 is sm_100, which --arch sm_90 lacks"),
        ({"device": "amd-mi300x"}, DeviceFigureError, "MI300X .* for comparison only"),
    ],
)  # fmt: skip
def test_unknown_devices_and_archs_are_refused(options, error, said, profiled):
    with pytest.raises(error, match=said):
        run(prof_type="static", **options)
    assert not profiled


def test_a_file_cannot_take_artefacts(profiled, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ToolchainError, match="is a file, not a folder"):
        run(prof_type="static", out_dir=tmp_path / "file")
    assert run(prof_type="static", out_dir=tmp_path / "new") == 0
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["out", "results"])
def test_a_folder_that_takes_no_files_is_told_before_any_work(
    name, profiled, tmp_path, monkeypatch
):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    (tmp_path / name).mkdir()
    monkeypatch.setattr(launcher.os, "access", lambda path, _: path.name != name)
    with pytest.raises(ToolchainError, match=f"nothing can be written to .*/{name}: .* not allow"):
        run(prof_type="static")
    assert not profiled


@pytest.mark.parametrize("options", [{"arch": "sm_90"}, {"device": "nvidia-b200"}])
@pytest.mark.parametrize("mode", [None, "event", "disabled"])
def test_what_a_timed_mode_would_ignore_is_refused(options, mode, monkeypatch):
    monkeypatch.setattr(launcher.torch.cuda, "is_available", lambda: True)
    (flag,) = options
    with pytest.raises(UsageError, match=f"--{flag} is for --prof_type=static; mode "):
        run(prof_type=mode, **options)


@pytest.mark.parametrize("mode", ["disabled", "event", "annotation", "ncu", "nsys"])
def test_modes_that_need_a_gpu_say_so(mode, monkeypatch):
    monkeypatch.setattr(launcher.torch.cuda, "is_available", lambda: False)
    with pytest.raises(ToolchainError, match=f"mode {mode} needs a CUDA GPU and torch sees none"):
        run(prof_type=mode)
