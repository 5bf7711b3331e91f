"""NVIDIA's docstring examples, executed on the CPU, print what NVIDIA says a GPU prints."""

from __future__ import annotations

import doctest
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mla_var3 import interpreter
from mla_var3.errors import InterpreterError
from mla_var3.interpreter import LaunchReport

from . import docstrings
from .docstrings import Example

EXAMPLES = docstrings.examples()

#: Examples that cannot run on a CPU, each with its reason.
SKIPPED = {
    "tune._tune:exhaustive_search-0": "measures launch times on a GPU",
    "jax._jax:cutile_call-0": "launches through JAX, which is not a dependency",
}

#: Examples that leave part of the array they write as it was, which the interpreter mentions.
PARTIAL_WRITES = {"_stub:TiledView.store-0", "_stub:store_advanced_indexing-0"}


def _run(example: Example, directory: Path) -> tuple[str, list[LaunchReport]]:
    reports: list[LaunchReport] = []

    def launch(stream: Any, grid: tuple[int, ...], kernel: Any, args: tuple[Any, ...]) -> None:
        reports.append(interpreter.launch(grid, kernel, args))

    return docstrings.run(example, directory, launch), reports


def test_every_example_of_the_package_is_found() -> None:
    with_output = Counter(e.module for e in EXAMPLES if e.expected is not None)
    without_output = Counter(e.module for e in EXAMPLES if e.expected is None)
    assert with_output == {"_stub": 139, "tune._tune": 1, "jax._jax": 1}
    assert without_output == {"_by_target": 2, "_execution": 1}
    assert len({e.id for e in EXAMPLES}) == len(EXAMPLES)


def test_only_the_named_examples_are_skipped() -> None:
    assert set(SKIPPED) <= {e.id for e in EXAMPLES}
    assert not [name for name in SKIPPED if name.startswith("_stub:")]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_example_prints_what_nvidia_says(example: Example, tmp_path: Path) -> None:
    if example.id in SKIPPED:
        pytest.skip(SKIPPED[example.id])
    if example.expected_exception is not None:
        _check_exception(example, tmp_path)
        return
    printed, reports = _run(example, tmp_path)
    assert (difference := docstrings.difference(example, printed)) is None, difference
    # These are correct programs: any other diagnostic on one of them is a false alarm.
    found = [(d.kind, d.severity) for report in reports for d in report.diagnostics]
    assert found == [("never-written", "warning")] * (example.id in PARTIAL_WRITES)


def _check_exception(example: Example, directory: Path) -> None:
    assert example.expected_exception is not None
    kind, message = example.expected_exception
    with pytest.raises(InterpreterError) as caught:
        _run(example, directory)
    refusal = caught.value.__cause__
    assert type(refusal).__name__ == kind
    # NVIDIA's text may leave out the words that cuTile puts before the message.
    assert doctest.OutputChecker().check_output(
        f"...{message}\n", f"{refusal}".splitlines()[0] + "\n", doctest.ELLIPSIS
    )


def test_a_wrong_result_is_seen(tmp_path: Path) -> None:
    example = next(e for e in EXAMPLES if e.id == "_stub:add-0")
    assert docstrings.difference(example, docstrings.run(example, tmp_path, lambda *a: None))
