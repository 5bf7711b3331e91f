"""Packages of others: each case runs twice, apart, and how it ended is told from why."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mla_var3.emulator import examples, strangers
from mla_var3.errors import EmulatorError, ToolchainError
from mla_var3.gpuless import suites
from mla_var3.gpuless.suite_scripts import Ran
from mla_var3.gpuless.suites import Script, Suite
from mla_var3.gpuless.tables import Found

PACKAGES = Suite(name="some", packages=("one==1", "two==2"), license="MIT")
SCRIPT = Script("cases.py", "sm_90a", "first")
CHOSEN = strangers.Strangers(limit=20.0)


def examined(monkeypatch: pytest.MonkeyPatch, function) -> Ran:
    monkeypatch.setattr(examples, "examine", lambda chosen, script: function())
    for name in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "HOME"):
        monkeypatch.setenv(name, "")  # So that they are put back.
    return strangers.examine(PACKAGES, CHOSEN, SCRIPT)


def test_the_second_run_finds_what_the_first_kept(monkeypatch):
    def run() -> Ran:
        kept = Path(os.environ["XDG_CACHE_HOME"])
        second = kept.exists()
        kept.mkdir(exist_ok=True)
        assert [Path(p).name for p in sys.path[:2]] == ["one==1", "two==2"]
        found = Found(kind="race", message="", at=f"line {1 + second}")
        return Ran([found, Found(kind="race", message="", at="both")], 1.0, 2, 3)

    ran = examined(monkeypatch, run)
    assert [f.at for f in ran.findings] == ["line 1", "both", "line 2"]
    assert (ran.clusters, ran.instructions) == (2, 3)


@pytest.mark.parametrize("raised", [EmulatorError("no such thing"), AssertionError("not close")])
def test_what_the_emulator_ends_is_told_from_what_is_wrong(monkeypatch, raised):
    def run() -> Ran:
        raise raised

    with pytest.raises(Exception, match=f"first run: {type(raised).__name__}: {raised}") as caught:
        examined(monkeypatch, run)
    assert isinstance(caught.value, EmulatorError) == isinstance(raised, EmulatorError)


def test_a_case_that_breaks_its_process_or_never_ends(monkeypatch):
    with pytest.raises(RuntimeError, match="first run: "):
        examined(monkeypatch, lambda: os._exit(3))


def test_packages_are_fetched_once_and_without_what_they_depend_on(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    called = []

    def pip(command, **_):
        called.append(command)
        Path(command[-2]).mkdir(parents=True)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(suites.subprocess, "run", pip)
    assert suites.sources(PACKAGES, None) == tmp_path
    suites.sources(PACKAGES, None)
    assert [c[-1] for c in called] == ["one==1", "two==2"]
    assert all("--no-deps" in c for c in called)
    assert suites.package_folder(PACKAGES, "one==1").is_dir()


def test_a_package_that_there_is_not(monkeypatch, tmp_path):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    failed = SimpleNamespace(returncode=1, stderr="notice\nno matching distribution\n")
    monkeypatch.setattr(suites.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ToolchainError, match="one==1 cannot be fetched: no matching"):
        suites.sources(PACKAGES, None)


@pytest.mark.parametrize(
    "what", [{}, {"packages": ["a==1"], "commit": "0" * 40, "repository": "x"}]
)
def test_a_suite_is_of_a_repository_or_of_packages(what):
    with pytest.raises(ValueError, match="either of a commit of a repository or of packages"):
        Suite(name="some", license="MIT", **what)


def test_requirements_are_fetched_again_when_they_change(monkeypatch, tmp_path):
    """Their packages lie beside the file; a folder of other requirements is not used."""
    fetched = []

    def pip(command, **_):
        fetched.append(Path(command[-1]).read_text())
        Path(command[command.index("--target") + 1]).mkdir()
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(suites.subprocess, "run", pip)
    monkeypatch.setattr(suites, "repo_root", lambda: tmp_path)
    (tmp_path / "third_party").mkdir()
    listed = tmp_path / "third_party" / "own-4.7.txt"
    for text in ("dsl==4.7.0", "dsl==4.7.0", "dsl==4.7.1"):
        listed.write_text(text)
        assert suites.required("own-4.7.txt") == tmp_path / "third_party" / "own-4.7"
    assert fetched == ["dsl==4.7.0", "dsl==4.7.1"]
