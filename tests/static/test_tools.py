"""NVIDIA's tools: found in packages, run, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mla_var3.errors import ToolchainError
from mla_var3.static import tools
from mla_var3.static.tools import Runner, Tool

from .packages import pretend

PYTHON = Tool("fake", Path(sys.executable), "1")
SLEEP = ["-c", "import time; time.sleep(60)"]


@pytest.fixture
def fresh(monkeypatch):
    """Forget what was found, before and after."""
    for function in (tools.locate, tools.disassembler):
        function.cache_clear()
    yield monkeypatch
    for function in (tools.locate, tools.disassembler):
        function.cache_clear()


@pytest.mark.parametrize("name", tools.DISASSEMBLERS)
def test_disassemblers_come_from_their_packages(fresh, name):
    fresh.setenv("PATH", "/nonexistent")
    found = tools.disassembler(name)
    assert found.name == name
    assert found.path.is_file()
    assert "nvidia" in found.path.parts
    assert found.version == tools.package_version(tools.DISASSEMBLERS[name])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nvidia-cuda-nvdisasm": None}, "nvidia-cuda-nvdisasm is not installed"),
        ({"nvidia-cuda-nvdisasm": "12.8.9"}, "12.8.9 is older than 13.4"),
    ],
)
def test_missing_and_old_packages_are_one_sentence(fresh, changes, said):
    pretend(fresh, changes)
    with pytest.raises(ToolchainError, match=said) as caught:
        tools.disassembler("nvdisasm")
    assert "\n" not in str(caught.value)


def test_a_newer_disassembler_is_taken(fresh):
    pretend(fresh, {"nvidia-cuda-nvdisasm": "14.0.1"})
    assert tools.disassembler("nvdisasm").version == "14.0.1"


def test_a_package_without_its_program(fresh):
    fresh.setattr(tools.importlib.metadata, "files", lambda _package: None)
    with pytest.raises(ToolchainError, match="holds no executable cuobjdump; reinstall"):
        tools.disassembler("cuobjdump")


def test_environment_hides_the_toolkit(monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/opt/other")
    monkeypatch.setenv("CUDA_PATH", "/opt/other")
    monkeypatch.setenv("KEPT", "1")
    env = tools.environment()
    assert "CUDA_HOME" not in env
    assert "CUDA_PATH" not in env
    assert env["KEPT"] == "1"
    assert env["PATH"].split(os.pathsep)[0] == str(tools.disassembler("nvdisasm").path.parent)


def test_run_returns_what_was_printed_and_insists_on_success():
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit({})"
    assert tools.run(PYTHON, ["-c", script.format(0)]) == "out\n"
    done = Runner().run(PYTHON, ["-c", script.format(3)])
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    with pytest.raises(ToolchainError, match="fake failed: err"):
        tools.run(PYTHON, ["-c", script.format(3)])


@pytest.fixture
def started(monkeypatch):
    """The processes that tools start."""
    found, popen = [], subprocess.Popen

    def remembered(*args, **options):
        found.append(popen(*args, **options))
        return found[-1]

    monkeypatch.setattr(tools.subprocess, "Popen", remembered)
    return found


def test_a_slow_tool_is_ended(started):
    with pytest.raises(TimeoutError, match=r"fake took longer than 0\.2 s"):
        Runner().run(PYTHON, SLEEP, timeout=0.2)
    (process,) = started
    assert process.returncode == -signal.SIGKILL


def test_stop_ends_what_runs_and_starts_no_more(started):
    runner = Runner()
    ended = []

    def work():
        with pytest.raises(ToolchainError, match="was ended: the compile was interrupted"):
            runner.run(PYTHON, SLEEP)
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    while not runner._live:
        time.sleep(0.01)
    runner.stop()
    thread.join(10)
    assert ended
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    with pytest.raises(ToolchainError, match="was not started: the compile was interrupted"):
        runner.run(PYTHON, ["-c", ""])


RUNS_A_TOOL = """
import sys
from pathlib import Path
from mla_var3.static.tools import Runner, Tool

Runner().run(Tool("fake", Path(sys.executable), "1"), ["-c", sys.argv[1]])
"""


def is_running(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_a_tool_and_what_it_starts_end_with_their_parent_even_by_kill_9(tmp_path):
    said = tmp_path / "pid"
    tool = (
        "import os, subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        f"open({str(said)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}.'); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", RUNS_A_TOOL, tool])
    while not (said.exists() and said.read_text().endswith(".")):
        assert parent.poll() is None
        time.sleep(0.01)
    pids = [int(pid) for pid in said.read_text()[:-1].split()]
    assert all(map(is_running, pids))
    parent.kill()
    parent.wait()
    while any(map(is_running, pids)):  # The suite's own limit ends a test that waits for ever.
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_tool_that_a_signal_ends_says_which(number):
    done = Runner().run(PYTHON, ["-c", f"import os; os.kill(os.getpid(), {int(number)})"])
    assert done.returncode == -number


def test_a_tool_that_cannot_be_started(tmp_path):
    broken = Tool("broken", tmp_path / "absent", "1")
    with pytest.raises(ToolchainError, match="broken cannot be started: No such file"):
        tools.run(broken, [])


def test_one_line_cuts_long_texts():
    assert tools.one_line("a\n  b\tc") == "a b c"
    assert tools.one_line("x" * 50, 10) == "x" * 7 + "..."


@pytest.mark.parametrize(
    ("version", "release"), [("13.4.92", (13, 4)), ("13.4", (13, 4)), ("12", (12,))]
)
def test_a_release_is_major_and_minor(version, release):
    assert tools.release(version) == release
