"""Scripts that see packages of their own, in a Python of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from mla_var3.emulator import examples
from mla_var3.emulator.examples import Conformance
from mla_var3.gpuless.suites import Script


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """A script, beside a folder of packages that only its file of requirements names."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "of_its_own.py").write_text("VERSION = '4.7.0'\n")
    (tmp_path / "script.py").write_text("import of_its_own\nraise ValueError(of_its_own.VERSION)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(examples, "required", lambda _: packages)
    return Script("script.py", "sm_100a", requirements="own.txt")


@pytest.mark.slow
def test_a_script_sees_the_packages_that_it_requires(script: Script) -> None:
    with pytest.raises(RuntimeError, match=r"ValueError: 4\.7\.0"):
        examples.examine(Conformance(), script)


@pytest.mark.slow
def test_what_it_came_to_comes_back(script: Script) -> None:
    Path(script.path).write_text("import of_its_own\nprint(of_its_own.VERSION)\n")
    ran = examples.examine(Conformance(schedules=2), script)
    assert (ran.clusters, ran.findings, ran.schedules) == (0, [], 2)
