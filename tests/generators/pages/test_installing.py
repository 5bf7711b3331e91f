"""The page on installing names the versions that the project pins, and drivers of records."""

from __future__ import annotations

import re

import pytest

from generators.pages import installing
from mla_var3.errors import KnowledgeError
from tests.generators.checking import ROOT


def test_the_command_asks_for_the_pinned_versions(site):
    pins = (ROOT / "constraints.txt").read_text()
    asked = re.findall(r"'([a-z-]+)\[\w+\]==([\d.]+)'", installing.command(site, str))
    assert [name for name, _ in asked] == ["cuda-tile", "nvidia-cutlass-dsl"]
    for name, version in asked:
        assert f"\n{name}=={version}\n" in pins


def test_drivers_are_those_of_records(site):
    told = installing.ran(site, str)
    drivers = {run.record.device.driver for run in site.runs if run.record.device}
    named = set(re.findall(r"\b\d{3}\.\d+\.\d+\b", told))
    assert named
    assert named <= drivers


def test_a_package_that_is_not_pinned_is_named(site, monkeypatch):
    monkeypatch.setattr(installing, "NEEDED", (("no-such-package", "", ""),))
    with pytest.raises(KnowledgeError, match="does not pin no-such-package"):
        installing.packages(site, str)
