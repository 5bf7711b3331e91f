"""The commands that this project's sources print, verbatim: each runs, or says what to type."""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fake_gpu import play_gpu

from mla_var3 import evidence
from mla_var3.app import launcher
from mla_var3.paths import kernels_dir
from mla_var3.profiling import annotation
from mla_var3.runtime import registry

ROOT = Path(__file__).resolve().parents[2]
VERSION = registry.find("flash_mla", "v1")
SMALL = {"b": 1, "h": 16, "s": 2, "t": 70, "k": 32, "p": 16}
SIZES = " ".join(f"--{name}={value}" for name, value in SMALL.items())

#: A command, the exit code that it ends with on a CPU, and what it says there.
COMMANDS = [
    (f"python -m mla_var3.kernel flash_mla v1 {SIZES} --dtype=bfloat16 --prof_type=disabled "
     "--check", 0, "k32-bf16"),
    (f"python -m mla_var3.kernel flash_mla v1 {SIZES} --prof_type=disabled --check", 0,
     "flash_mla v1: right: relative error"),
    (f"python -m mla_var3.kernel.cutile.mla.flash_mla v1 {SIZES} --prof_type=disabled --check", 0,
     "flash_mla v1: right: relative error"),
    ("python -m mla_var3.kernel flash_mla v1 --prof_type=event", 2,
     "mode event needs a CUDA GPU and torch sees none; --prof_type=static needs none"),
    ("python -m mla_var3.kernel flash_mla v1 --prof_type=annotation", 2, "use --prof_type=event"),
    ("python -m mla_var3.kernel flash_mla v1 --prof_type=ncu", 2, "ncu on PATH"),
    ("python -m mla_var3.kernel flash_mla v1 --prof_type=nsys", 2, "--prof_type=static needs none"),
]  # fmt: skip

#: Scripts of the sources that lock clocks; ``tests/scripts`` has what they do to a GPU.
CLOCK_SCRIPTS = ["./scripts/lock-gpu-clock.sh", "./scripts/reset-gpu-clock.sh"]

#: Scripts of the sources that take times, and the command whose flags they take.
BENCH_SCRIPTS = [
    ("tests/benchmark/bench_all_mla.py", "mla_var3.app.commands bench"),
    ("tests/benchmark/bench_mla.py", "mla_var3.app.commands bench"),
    ("tests/benchmark/bench_mla_var6_plus.py", "mla_var3.kernel mla_var6_plus v0"),
    ("tests/benchmark/bench_mla_var6_plus_v3.py", "mla_var3.kernel mla_var6_plus v3"),
    ("tests/benchmark/bench_mla_var6_plus_v4.py", "mla_var3.kernel mla_var6_plus v4"),
]


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """A CPU, records and artefacts in a folder of the test, no advice (it has its own tests)."""
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(launcher.Advice, "steps", lambda *_: [])
    monkeypatch.setattr(launcher.Advice, "known", lambda *_: [])
    monkeypatch.setattr("shutil.which", lambda _: None)
    return tmp_path


def ends(run, *arguments) -> int:
    """The exit code of what is run."""
    with pytest.raises(SystemExit) as exit_:
        run(*arguments)
    return exit_.value.code


@pytest.mark.parametrize(("line", "code", "said"), COMMANDS, ids=[line for line, *_ in COMMANDS])
def test_each_command_runs_or_says_in_one_sentence_what_to_type(
    line, code, said, monkeypatch, capsys
):
    python, module_flag, module, *arguments = shlex.split(line)
    assert (python, module_flag) == ("python", "-m")
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    assert ends(lambda: runpy.run_module(module, run_name="__main__")) == code
    out, err = capsys.readouterr()
    assert said in out + err
    if code:
        assert err.startswith("error: ")
        assert err.count("\n") == 1


def test_clone_kernel(tmp_path, monkeypatch, capsys, request):
    """``python ./scripts/clone-kernel.py mla_var6_plus_v2 v5``."""
    kernels = tmp_path / "kernels"
    shutil.copytree(
        kernels_dir() / "cutile" / "mla" / "mla_var6_plus",
        kernels / "cutile" / "mla" / "mla_var6_plus",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(kernels_dir() / "cutile" / "__init__.py", kernels / "cutile")
    monkeypatch.setattr(registry, "kernels_dir", lambda: kernels)
    registry.clear_caches()
    request.addfinalizer(registry.clear_caches)
    monkeypatch.setattr(sys, "argv", ["clone-kernel.py", "mla_var6_plus_v2", "v5"])
    script = str(ROOT / "scripts/clone-kernel.py")
    assert ends(lambda: runpy.run_path(script, run_name="__main__")) == 0
    made = kernels / "cutile/mla/mla_var6_plus/mla_var6_plus_v5/mla_var6_plus_v5.py"
    assert made.is_file()
    assert "mla_var6_plus_v5" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["annotation", "event", "ncu", "nsys"])
def test_the_functions_of_the_modes_are_imported_from_runtime(mode):
    name = f"{mode}_profile_plan"
    scope: dict[str, object] = {}
    exec(f"from mla_var3.runtime.profiling.{mode} import {name}", scope)
    assert callable(scope[name])


class TestOnAGpu:
    @pytest.fixture(autouse=True)
    def gpu(self, root, monkeypatch):
        """A GPU that is played, without nsight-python."""
        play_gpu(monkeypatch)
        monkeypatch.setattr(annotation, "missing", lambda: "nsight-python is not installed")

    def test_without_nsight_it_falls_back_to_event_and_says_so(self, monkeypatch, capsys):
        arguments = ["flash_mla", "v1", *SIZES.split(), "--no_autotune", "--bench_runs=5"]
        monkeypatch.setattr(sys, "argv", ["mla_var3.kernel", *arguments])
        assert ends(lambda: runpy.run_module("mla_var3.kernel", run_name="__main__")) == 0
        out = capsys.readouterr().out
        assert "nsight-python is not installed: timing without counters" in out
        assert next(iter(evidence.find())).mode == "event"

    def test_a_plan_benchmarks_itself_into_a_folder_of_each_run(self, tmp_path):
        plan = VERSION.plan_class()(**SMALL)
        device = torch.device("cuda")
        runs = [plan.benchmark_kernel(device, prof_type="event") for _ in range(2)]
        assert all(run.get_total_time_us() > 0 for run in runs)
        folder = tmp_path / f"out/profiles/event/cutile/mla/flash_mla/v1/{plan.slug()}"
        assert len(list(folder.iterdir())) == 2


def script(name: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a script of the checkout."""
    command = [name, *arguments] if name.endswith(".sh") else [sys.executable, name, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "usage"), BENCH_SCRIPTS)
def test_bench_scripts_explain_their_flags(name, usage, root):
    code, out, err = script(name, "--help")
    assert (code, err) == (0, "")
    # A line before it names the language that was taken, where a design exists in several.
    assert f"usage: python -m {usage} " in out
    assert not list(root.iterdir())


@pytest.mark.parametrize("name", CLOCK_SCRIPTS)
@pytest.mark.parametrize("finds", ["exit 9", "exit 0"], ids=["no driver", "no GPU"])
def test_clock_scripts_say_that_there_is_no_gpu(name, finds, tmp_path):
    """``nvidia-smi`` is played: clocks of a GPU that is here stay as they are."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\n{finds}\n")
    smi.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = "nvidia-smi finds no GPU: no clock is changed\n"
    assert script(name, PATH=path) == (0, said, "")
