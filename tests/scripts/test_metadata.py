"""What pyproject.toml promises to installers."""

from __future__ import annotations

import sys
import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHON = "Programming Language :: Python :: "


def test_every_python_that_is_named_may_install_and_this_one_is_named():
    named = {c.removeprefix(PYTHON) for c in PROJECT["classifiers"] if c.startswith(PYTHON)}
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert all(allowed.contains(version) for version in named)
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named


def test_any_torch_will_do():
    [torch] = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "torch"]
    assert torch.specifier.contains("99.0")


def test_the_constraints_pin_one_version_each_and_allow_what_the_project_asks_for():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    found = {pin.name.lower(): next(iter(pin.specifier)) for pin in pins}
    assert len(found) == len(pins)
    assert {pin.operator for pin in found.values()} == {"=="}
    extras = chain.from_iterable(PROJECT["optional-dependencies"].values())
    for wanted in map(Requirement, [*PROJECT["dependencies"], *extras]):
        assert wanted.specifier.contains(found[wanted.name.lower()].version), wanted
