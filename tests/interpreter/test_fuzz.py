"""Random programs against numpy, with fixed seeds here; ``python -m mla_var3.interpreter fuzz``."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.interpreter import fuzz
from mla_var3.interpreter.commands import main

PROGRAMS = 500
GROUP = 50


@pytest.mark.parametrize("first", range(0, PROGRAMS, GROUP))
def test_random_programs_agree_with_numpy(first: int) -> None:
    for seed in range(first, first + GROUP):
        order = ("forward", "reverse", "random")[seed % 3]
        assert (found := fuzz.difference(seed, order)) is None, f"seed {seed}:\n{found}"


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


def test_a_seed_makes_one_program() -> None:
    assert fuzz.make(7).source == fuzz.make(7).source
    assert len({fuzz.make(seed).source for seed in range(20)}) > 15
