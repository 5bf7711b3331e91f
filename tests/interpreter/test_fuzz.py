"""Random programs against numpy, with fixed seeds here; ``python -m mla_var3.interpreter fuzz``."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mla_var3.errors import UsageError
from mla_var3.interpreter import fuzz
from mla_var3.interpreter.commands import main

PROGRAMS = 500
GROUP = 50


@pytest.mark.parametrize("first", range(0, PROGRAMS, GROUP))
def test_random_programs_agree_with_numpy(first: int) -> None:
    assert fuzz.differing(range(first, first + GROUP)) == {}


def test_a_program_that_once_differed() -> None:
    assert fuzz.difference(3037485) is None  # torch's sqrt on a CPU is off by one in the last place


def test_a_difference_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = fuzz.make

    def wrong(seed: int) -> fuzz.Program:
        program = make(seed)
        program.expected = program.expected + np.ones((), program.expected.dtype)
        return program

    monkeypatch.setattr(fuzz, "make", wrong)
    assert "expected" in str(fuzz.difference(1))
    assert main(["fuzz", "--programs=1", "--first=1"]) == 1
    assert "seed 1:" in capsys.readouterr().out


@pytest.mark.parametrize("value", [np.nan, 77.0])
def test_a_number_and_none_differ(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    make = fuzz.make
    seed = next(s for s in range(50) if make(s).expected.dtype.kind == "f")

    def wrong(seed: int) -> fuzz.Program:
        program = make(seed)
        program.expected = program.expected.copy()
        program.expected[-1, -1] = value
        return program

    assert np.isfinite(make(seed).expected[-1, -1])
    monkeypatch.setattr(fuzz, "make", wrong)
    rows, columns = make(seed).expected.shape
    assert f"element {(rows - 1, columns - 1)}: " in str(fuzz.difference(seed))


@pytest.mark.slow
def test_processes_share_the_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz, "_PART", 2)
    assert main(["fuzz", "--programs=3", "--first=1", "--jobs=2"]) == 0
    said = capsys.readouterr()
    assert said.out == "3 programs from seed 1: 0 differ\n"
    assert said.err == "2 programs, 0 differ\n3 programs, 0 differ\n"


@pytest.mark.parametrize("flag", ["--programs=0", "--jobs=0"])
def test_at_least_one(flag: str) -> None:
    with pytest.raises(UsageError, match="both are at least 1"):
        main(["fuzz", flag])


def test_a_seed_makes_one_program() -> None:
    assert fuzz.make(7).source == fuzz.make(7).source
    assert len({fuzz.make(seed).source for seed in range(20)}) > 15


def test_a_finding_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    said = SimpleNamespace(diagnostics=["the first", "the second"])
    monkeypatch.setattr(fuzz, "launch", lambda *_, **__: said)
    assert fuzz.difference(1) == f"{fuzz.make(1).source}\nthe first"
