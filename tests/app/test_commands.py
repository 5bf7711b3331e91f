from __future__ import annotations

import subprocess
import sys

import pytest

from mla_var3.app import commands
from mla_var3.errors import UnknownNameError, UsageError


def test_an_unknown_command_is_refused(monkeypatch):
    with pytest.raises(
        UnknownNameError, match=r"unknown command 'chekc' \(known: check, compare, bench\)"
    ):
        commands.main(["chekc"])
    monkeypatch.setattr(sys, "argv", ["commands"])
    with pytest.raises(UsageError, match="a command must be given: check, compare, bench"):
        commands.main()


def test_the_module_ends_with_2_and_a_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "mla_var3.app.commands", "check", "flash_mal"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown design 'flash_mal'")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mutants": -1}, "--mutants=-1 is below 0"),
        ({"mutants": 4, "compiles": -2}, "--compiles=-2 is below 0"),
        ({"compiles": 3}, "say --mutants, too"),
    ],
)
def test_numbers_of_wrong_kernels_are_checked_before_any_is_judged(given, said):
    with pytest.raises(UsageError, match=said):
        commands.check("gemm@cutile-dsl", "v0", **given)
