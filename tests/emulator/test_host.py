"""The CuTe DSL's own host functions on CPU tensors; needs the DSL, no GPU."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mla_var3.emulator import host
from mla_var3.emulator.commands import _divided
from mla_var3.emulator.script import _untimed

dsl = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None,
    reason="the CuTe DSL is not installed (extra cute)",
)
SCRIPT = """\
import sys

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def double(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    y[thread] = x[thread] + x[thread]


@cute.jit
def host(x: cute.Tensor, y: cute.Tensor):
    double(x, y).launch(grid=(1, 1, 1), block=(int(sys.argv[1]), 1, 1))


a = torch.arange(64, dtype=torch.float32, device="cuda")
b = torch.zeros(64, device="cuda")
host(from_dlpack(a), from_dlpack(b))
assert torch.equal(b, 2 * a)
"""


def emulated(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mla_var3.emulator", "run", str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@dsl
def test_a_script_runs_unmodified(tmp_path: Path) -> None:
    script = tmp_path / "double.py"
    script.write_text(SCRIPT)
    done = emulated(script, "64")
    assert done.returncode == 0, done.stderr
    assert "256 bytes read, 256 written, 0 findings" in done.stdout


@dsl
def test_its_mistake_is_reported_with_the_line(tmp_path: Path) -> None:
    script = tmp_path / "double.py"
    script.write_text(SCRIPT)
    done = emulated(script, "96")
    assert done.returncode == 1, done.stderr
    assert "out-of-bounds" in done.stdout
    assert "double.py:12" in done.stdout


def test_a_missing_script_is_one_sentence(tmp_path: Path) -> None:
    done = emulated(tmp_path / "none.py")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_flags_before_the_script_are_ours() -> None:
    ours, theirs = _divided(["--schedules", "3", "fmha.py", "--schedules", "9"])
    assert ours == ["--schedules", "3"]
    assert theirs == ["fmha.py", "--schedules", "9"]


IN_PLACE = SCRIPT.replace("y[thread] = x[thread] + x[thread]", "x[thread] = x[thread] + 1.0")


@dsl
def test_other_schedules_run_on_the_same_memory_and_a_failed_assertion_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mla_var3.emulator.options import STRICT, Options
    from mla_var3.emulator.script import run_script

    script = tmp_path / "add.py"
    # 96 threads on 64 elements: the findings of both ways must survive the assertion.
    script.write_text(IN_PLACE.replace("torch.equal(b, 2 * a)", "a[63] == 64, float(a[63])"))
    others = [Options(seed=1), Options(model=STRICT)]
    done = run_script(script, ["64"], Options(), "sm_90a", others)
    assert done.ended.error is None, "each way must start from the same memory"
    assert [launch.diagnostics for launch in done.launches] == [[], [], []]

    script.write_text(IN_PLACE.replace("torch.equal(b, 2 * a)", "False"))
    done = run_script(script, ["96"], Options(), "sm_90a", others)
    assert isinstance(done.ended.error, AssertionError)
    assert {d.kind for d in done.diagnostics} == {"out-of-bounds"}
    assert {d.schedule for d in done.diagnostics} == {"lowest pc first", "seed 1"}
    assert {d.model for d in done.diagnostics} == {"default", "strict"}


@pytest.mark.parametrize(("launched", "runs"), [([], [1]), ([object()], [])])
def test_a_benchmark_runs_once_what_nothing_has_launched(launched, runs):
    ran = []
    arguments = SimpleNamespace(args=(1,), kwargs={})
    emulation = SimpleNamespace(launches=launched)
    assert _untimed(emulation, ran.append, kernel_arguments=arguments, iterations=9) == 1.0
    assert ran == runs


@pytest.mark.parametrize(("variables", "shared"), [("", True), (".global .u32 kept;", False)])
def test_a_lowered_kernel_is_shared_unless_it_holds_memory(variables: str, shared: bool) -> None:
    place = "mov.u64 %rd1, kept;" if variables else "mov.u64 %rd1, 0;"
    text = (
        f".version 8.0\n.target sm_90\n.address_size 64\n{variables}\n"
        f".visible .entry kernel()\n{{\n.reg .b64 %rd<2>;\n{place}\nret;\n}}\n"
    )
    first, again = (host._program(text, "kernel") for _ in range(2))
    assert bool(first.storage) is not shared
    assert (first is again) is shared
