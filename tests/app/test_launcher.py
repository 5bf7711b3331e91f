from __future__ import annotations

from types import SimpleNamespace

import pytest

from mla_var3.app import launcher
from mla_var3.app.options import RunOptions
from mla_var3.errors import (
    DeviceFigureError,
    NotExecutableError,
    PlanError,
    ToolchainError,
    UnknownNameError,
    UsageError,
)
from mla_var3.knowledge import deciding, matching
from mla_var3.profiling import annotation, modes, report, summary
from mla_var3.runtime import registry

VERSION = registry.find("flash_mla")
PLAN = VERSION.plan_class()()
PEER = registry.find("torch_sdpa")
#: A path that no screen is wide enough for.
LONG = "results/" + "x" * 200


@pytest.fixture
def profiled(monkeypatch, tmp_path):
    """Modes and settings of the runs, which write nothing here; sm_120 fails."""
    calls = []

    def fake(mode, plan, *, progress, **settings):
        progress(f"unchanged {LONG}")
        progress("compiling [x]")
        calls.append((mode, settings))
        return SimpleNamespace(
            records=(), steps=(), known=(), files=(1, 2),
            record_paths=[tmp_path / f"static/{arch}/p/l/d/r.json" for arch in ("sm_90", "sm_120")],
            report=tmp_path / "report.md", ok=settings.get("archs") != ("sm_120",),
        )  # fmt: skip

    monkeypatch.setattr(modes, "run", fake)
    monkeypatch.setattr(report, "render", lambda *_args, **_: "# everything")
    monkeypatch.setattr(summary, "render", lambda *_args, **_: "# summary")
    return calls


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(launcher, "has_gpu", lambda: True)
    monkeypatch.setattr(annotation, "missing", lambda: None)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(launcher, "has_gpu", lambda: False)


def run(version=VERSION, **options) -> int:
    return launcher.run(version, version.plan_class()(), RunOptions(**options))


def test_one_screen_unless_all_is_asked_for(profiled, no_gpu, capsys):
    run()
    short = capsys.readouterr().out
    run(verbose=True)
    whole = capsys.readouterr().out
    assert "summary" in short
    assert "everything" in whole
    assert "summary" not in whole


class TestDefaultMode:
    def test_static_without_a_gpu(self, profiled, no_gpu, capsys, tmp_path):
        assert run() == 0
        ((mode, settings),) = profiled
        assert mode == "static"
        assert settings["archs"] is None  # Those of the language that the version compiles for.
        assert settings["device"] is None
        out, err = capsys.readouterr()
        assert "compiling [x]" in err
        assert "compiling" not in out
        assert f"wrote {tmp_path}/: report.md, report.html, 2 more files" in out
        assert f"record {tmp_path}/static/{{sm_90,sm_120}}/p/l/d/r.json" in out

    def test_a_check_where_the_language_compiles_nothing(self, profiled, no_gpu, capsys):
        assert run(PEER) == 0
        assert profiled[0][0] == "disabled"
        assert "library compiles nothing: --prof_type=disabled --check" in capsys.readouterr().out

    def test_annotation_with_a_gpu(self, profiled, gpu):
        assert run() == 0
        assert profiled[0][0] == "annotation"

    def test_event_where_its_profiler_is_missing_and_it_says_so(
        self, profiled, gpu, capsys, monkeypatch
    ):
        monkeypatch.setattr(annotation, "missing", lambda: "nsight-python is not installed")
        assert run() == 0
        assert profiled[0][0] == "event"
        assert "· nsight-python is not installed: timing without counters, as" in (
            capsys.readouterr().out
        )

    def test_the_asked_one(self, profiled, gpu):
        assert run(prof_type="nsys", bench_runs=7, retune=True) == 0
        mode, settings = profiled[0]
        assert mode == "nsys"
        assert (settings["bench_runs"], settings["retune"], settings["version"]) == (
            7, True, VERSION,
        )  # fmt: skip
        assert "check" not in settings  # Modes that time always check.

    @pytest.mark.parametrize("check", [True, False])
    def test_disabled_checks_on_demand(self, check, profiled, gpu):
        run(prof_type="disabled", check=check)
        assert profiled[0][1]["check"] is check


def test_a_path_stays_in_one_line(profiled, no_gpu, capsys):
    """It is to be copied from where it is printed, also from a log."""
    run()
    assert f"· unchanged {LONG}" in capsys.readouterr().err.splitlines()


def test_on_a_terminal_the_width_is_its_own(profiled, monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")  # A dumb one draws no status.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert run(prof_type="static") == 0
    assert "compiling" in capsys.readouterr().out


def test_what_runs_nowhere_here_tells_what_is_known(no_gpu, monkeypatch, capsys):
    def never(*_args, **_settings):
        raise NotExecutableError("attention has no CPU path: it needs a GPU")

    monkeypatch.setattr(modes, "run", never)
    with pytest.raises(NotExecutableError):
        run(registry.find("deepseek_flash_mla"))
    said = capsys.readouterr().out
    assert "deepseek_flash_mla v0: not run here." in said
    assert "Measured: " in said


@pytest.mark.slow
def test_where_no_page_is_certain_the_next_step_is_a_measurement(monkeypatch):
    """It is no fact beside a list of steps that says that nothing was found."""
    version = registry.find("flash_mla@cute-dsl", "v20")
    advice = launcher.Advice(version, version.plan_class()())
    told = [("Power", "low"), (deciding.MEASURE, "Measure `x`: it decides o1.")]
    monkeypatch.setattr(deciding, "verdicts", lambda *_: told)
    monkeypatch.setattr(matching, "steps", lambda *_: [])
    assert advice.steps([]) == advice.brief == ["Measure `x`: it decides o1."]
    known = dict(advice.known([]))
    assert known["Power"] == "low"
    assert deciding.MEASURE not in known


def test_a_failed_kernel_is_1(profiled):
    assert run(prof_type="static", arch="sm_120") == 1


def test_a_device_brings_its_arch(profiled):
    run(prof_type="static", device="nvidia-b200")
    run(prof_type="static", device="NVIDIA H200", arch="sm_90,sm_100")
    (_, first), (_, second) = profiled
    assert first["archs"] == ("sm_100",)
    assert first["device"].key == "nvidia-b200"
    assert second["archs"] == ("sm_90", "sm_100")


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
def test_what_a_timed_mode_would_ignore_is_refused(options, mode, gpu):
    (flag,) = options
    with pytest.raises(UsageError, match=f"--{flag} is for --prof_type=static; mode "):
        run(prof_type=mode, **options)


@pytest.mark.parametrize("mode", ["event", "nsys"])
def test_modes_that_need_a_gpu_say_so(mode, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ToolchainError, match=f"mode {mode} needs a CUDA GPU and torch sees none"):
        run(prof_type=mode)
