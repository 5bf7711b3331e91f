import importlib.metadata
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from mla_var3.errors import ToolchainError, UnknownNameError
from mla_var3.languages.cutile import toolchain


@pytest.fixture
def fresh(monkeypatch):
    """Forget what was found, before and after."""
    for function in (toolchain.find, toolchain.known_archs, toolchain.bytecode_version):
        function.cache_clear()
    yield monkeypatch
    for function in (toolchain.find, toolchain.known_archs, toolchain.bytecode_version):
        function.cache_clear()


def pretend(monkeypatch, changes):
    real = importlib.metadata.version

    def version(package):
        if package not in changes:
            return real(package)
        if changes[package] is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return changes[package]

    monkeypatch.setattr(toolchain.importlib.metadata, "version", version)


def test_tools_come_from_packages_and_not_from_path(fresh):
    fresh.setenv("PATH", "/nonexistent")
    for name, package in toolchain.PACKAGES.items():
        tool = toolchain.find(name)
        assert tool.path.is_file()
        assert "nvidia" in tool.path.parts
        assert tool.version == importlib.metadata.version(package)


def test_the_archs_are_those_the_tool_lists():
    archs = toolchain.known_archs()
    assert {"sm_80", "sm_90", "sm_100", "sm_120"} <= set(archs)
    assert len(set(archs)) == len(archs)
    assert toolchain.require_arch("sm_90") == "sm_90"
    with pytest.raises(UnknownNameError, match=r"unknown arch 'sm_91'.*did you mean 'sm_90'"):
        toolchain.require_arch("sm_91")


def test_newest_common_bytecode_version():
    assert toolchain.bytecode_version() == "13.4"
    assert toolchain.versions()["bytecode"] == "13.4"
    assert set(toolchain.PACKAGES) < set(toolchain.versions())


@pytest.mark.parametrize(
    ("tool", "changes", "said"),
    [
        ("nvdisasm", {"nvidia-cuda-nvdisasm": None}, "nvidia-cuda-nvdisasm is not installed"),
        ("nvdisasm", {"nvidia-cuda-nvdisasm": "12.8.9"}, "12.8.9 is older than 13.4"),
        ("tileiras", {"nvidia-cuda-tileiras": "13.5.1"}, "checked against release 13.4"),
        ("tileiras", {"nvidia-nvvm": "13.2.0"}, "nvidia-nvvm 13.2.0 .* different releases"),
        ("tileiras", {"nvidia-cuda-nvcc": None}, "nvidia-cuda-nvcc is not installed"),
    ],
)
def test_missing_and_wrong_versions_are_one_sentence(fresh, tool, changes, said):
    pretend(fresh, changes)
    with pytest.raises(ToolchainError, match=said) as caught:
        toolchain.find(tool)
    assert "\n" not in str(caught.value)


def test_a_package_without_its_program(fresh):
    fresh.setattr(toolchain.importlib.metadata, "files", lambda _package: None)
    with pytest.raises(ToolchainError, match="holds no executable cuobjdump; reinstall"):
        toolchain.find("cuobjdump")


def test_an_unknown_tool(fresh):
    with pytest.raises(UnknownNameError, match="unknown tool 'ptxas'"):
        toolchain.find("ptxas")


def test_changed_help_text_and_no_common_bytecode(fresh):
    fresh.setattr(toolchain, "run", lambda *_a, **_k: toolchain.Completed(0, "12.0\n", ""))
    with pytest.raises(ToolchainError, match="lists no arch"):
        toolchain.known_archs()
    with pytest.raises(ToolchainError, match="no version in common"):
        toolchain.bytecode_version()


def test_environment_hides_the_toolkit(monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/opt/other")
    monkeypatch.setenv("CUDA_PATH", "/opt/other")
    monkeypatch.setenv("KEPT", "1")
    env = toolchain.environment()
    assert "CUDA_HOME" not in env
    assert "CUDA_PATH" not in env
    assert env["KEPT"] == "1"
    assert env["PATH"].split(os.pathsep)[0] == str(toolchain.find("nvdisasm").path.parent)


@pytest.fixture
def fake(monkeypatch):
    """Let a tool's name stand for the Python interpreter."""
    tool = toolchain.Tool("fake", Path(sys.executable), "1")
    real = toolchain.find
    monkeypatch.setattr(toolchain, "find", lambda name: tool if name == "fake" else real(name))
    return monkeypatch


def test_run_returns_both_streams_and_insists_on_success(fake):
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit({})"
    done = toolchain.run("fake", ["-c", script.format(0)])
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    with pytest.raises(ToolchainError, match="fake failed: err"):
        toolchain.run("fake", ["-c", script.format(3)])


def test_a_slow_tool_is_ended(fake):
    started = time.monotonic()
    with pytest.raises(TimeoutError, match=r"fake took longer than 0\.2 s"):
        toolchain.Runner().run("fake", ["-c", "import time; time.sleep(60)"], timeout=0.2)
    assert time.monotonic() - started < 10


def test_stop_ends_what_runs_and_starts_no_more(fake):
    runner = toolchain.Runner()
    ended = []

    def work():
        with pytest.raises(ToolchainError, match="was ended: the compile was interrupted"):
            runner.run("fake", ["-c", "import time; time.sleep(60)"])
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    while not runner._live:
        time.sleep(0.01)
    runner.stop()
    thread.join(10)
    assert ended
    with pytest.raises(ToolchainError, match="was not started: the compile was interrupted"):
        runner.run("fake", ["-c", ""])


def test_a_tool_that_cannot_be_started(monkeypatch, tmp_path):
    broken = toolchain.Tool("broken", tmp_path / "absent", "1")
    real = toolchain.find
    monkeypatch.setattr(toolchain, "find", lambda name: broken if name == "broken" else real(name))
    with pytest.raises(ToolchainError, match="broken cannot be started: No such file"):
        toolchain.run("broken", [])


def test_one_line_cuts_long_texts():
    assert toolchain.one_line("a\n  b\tc") == "a b c"
    assert toolchain.one_line("x" * 50, 10) == "x" * 7 + "..."
