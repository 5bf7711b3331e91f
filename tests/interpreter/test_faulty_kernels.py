"""Mistakes made apart from the code that looks for them: each is reported, at its line alone."""

from __future__ import annotations

import inspect

import pytest

from mla_var3.interpreter import LaunchReport, Options, launch
from mla_var3.interpreter.signature import annotated_function
from tests.interpreter.faulty_kernels import CASES, Faulty

#: Reported as what usually is a mistake, or in a run that looks for numbers: not errors.
NUMBERS = frozenset({"nan", "infinity", "float16-overflow", "index-overflow"})


def reported(case: Faulty) -> LaunchReport:
    arguments = case.arguments()
    unwritten = tuple(arguments[i] for i in case.unwritten)
    options = Options(uninitialised=unwritten, numerics=bool(case.kinds & NUMBERS))
    return launch(case.grid, case.kernel, arguments, options=options)


def marked(case: Faulty) -> set[int]:
    lines, first = inspect.getsourcelines(annotated_function(case.kernel).pyfunc)
    return {first + i for i, line in enumerate(lines) if line.rstrip().endswith("# fault")}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_reported_at_its_line(name: str) -> None:
    case = CASES[name]
    report = reported(case)
    found = [d for d in report.diagnostics if d.severity == "error" or d.kind in case.kinds]
    assert found, report.summary()
    assert {d.kind for d in found} <= case.kinds, report.summary()
    assert {d.line for d in found} <= marked(case), report.summary()


def test_there_are_enough_mistakes_of_enough_kinds() -> None:
    assert len(CASES) >= 30
    assert len({kind for case in CASES.values() for kind in case.kinds}) >= 12
