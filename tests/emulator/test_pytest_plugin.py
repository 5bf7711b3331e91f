"""The pytest plugin: a suite written for a GPU, without one; findings fail a test."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
SUITE = """\
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

assert torch.cuda.get_device_capability() == (9, 0)
TABLE = torch.arange(4, device="cuda")


@cute.kernel
def double(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    y[thread] = x[thread] + x[thread]


@cute.jit
def host(x: cute.Tensor, y: cute.Tensor, threads: int):
    double(x, y).launch(grid=(1, 1, 1), block=(threads, 1, 1))


@pytest.mark.parametrize("threads", [64, 65])
def test_double(threads):
    assert torch.cuda.is_available()
    x = torch.arange(64, dtype=torch.float32, device="cuda")
    y = torch.zeros(64, device="cuda")
    host(from_dlpack(x), from_dlpack(y), threads)
    assert torch.equal(y, 2 * x)


def test_without_a_launch():
    assert torch.zeros(2).sum() == 0
"""


@pytest.mark.slow
def test_a_suite_runs_unchanged_and_findings_fail(tmp_path: Path) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "mla_var3.emulator.pytest_plugin"]
    command += ["-p", "no:cacheprovider", str(suite)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "test_double[65]" in done.stdout
    assert "out-of-bounds: global read of 4 bytes" in done.stdout
    assert "test_suite.py:13" in done.stdout
    assert "2 launches, 1 findings" in done.stdout, done.stdout


REFUSED = (
    SUITE.partition("@pytest.mark.parametrize")[0]
    + """\
def work():
    from mla_var3.emulator import emulation
    from mla_var3.errors import EmulatorError

    def refuse(text):
        raise EmulatorError("the instruction is not emulated")

    emulation.active().patch = refuse
    x = torch.zeros(64, device="cuda")
    host(from_dlpack(x), from_dlpack(x), 64)


def test_refused():
    work()


def test_refused_in_a_child():
    import multiprocessing

    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()


def test_after_it():
    assert torch.cuda.is_available()
"""
)


@pytest.mark.slow
def test_a_launch_that_is_refused_fails_its_test_alone(tmp_path: Path) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(REFUSED)
    command = [sys.executable, "-m", "pytest", "-p", "mla_var3.emulator.pytest_plugin"]
    command += ["-p", "no:cacheprovider", str(suite)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("the instruction is not emulated") >= 2
    assert "INTERNALERROR" not in done.stdout
