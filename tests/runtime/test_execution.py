"""Findings that a design argues are no errors of it; all others stay what they are."""

from dataclasses import replace

import pytest

from mla_var3.runtime.execution import Argued, Diagnostic, argued

FOUND = Diagnostic("race", "error", "somewhere/kernel.py", 12, "two threads meet")
KNOWN = Argued("race", "kernel.py", 12, "both store the same")


def test_an_argued_finding_says_why() -> None:
    got = argued(FOUND, [KNOWN])
    assert got.severity == "info"
    assert got.message == "two threads meet; argued: both store the same"


@pytest.mark.parametrize(
    "other",
    [{"kind": "deadlock"}, {"line": 13}, {"file": "somewhere/other.py"}, {"file": "akernel.py"}],
)
def test_another_finding_is_an_error(other: dict) -> None:
    found = replace(FOUND, **other)
    assert argued(found, [KNOWN]) == found
