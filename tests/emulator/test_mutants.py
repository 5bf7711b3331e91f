"""Every seeded bug is reported, at the right lines."""

import pytest

from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.options import DEFAULT, STRICT, Options
from tests.emulator.kernels import ALL
from tests.emulator.mutants import MUTANTS, Mutant


def reported(mutant: Mutant, done: Launch) -> bool:
    """Whether a report has one of the kinds and one of the lines."""
    lines = {ALL[mutant.kernel].line(mark) for mark in mutant.lines}
    for d in done.diagnostics:
        at = {d.at.line, d.other.line if d.other else None}
        if d.kind in mutant.kinds and at & lines:
            return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.kernel}: {m.name}")
def test_reported(mutant: Mutant) -> None:
    model = STRICT if mutant.strict else DEFAULT
    _, done = ALL[mutant.kernel].run(mutant.edits, Options(model=model))
    assert reported(mutant, done), "\n".join(map(str, done.diagnostics)) or "nothing is reported"


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 60
    assert sum(not m.strict for m in MUTANTS) >= 55
    assert {m.kernel for m in MUTANTS} == set(ALL)
