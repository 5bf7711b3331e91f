"""The conformance table: written whole, read back, and each outcome named."""

from pathlib import Path

import pytest

from mla_var3.emulator.conformance import EXAMPLES, Outcome, Table, main, read, write
from mla_var3.errors import EmulatorError

ROOT = Path(__file__).parents[2]


def outcome(**facts: object) -> Outcome:
    return Outcome.model_validate(
        {"example": "a.py", "arch": "sm_80", "arguments": "", "status": "passed", "seconds": 1.0}
        | facts
    )


def test_a_table_there_and_back(tmp_path: Path) -> None:
    table = Table(
        dsl="4.8.1",
        cutlass="abc",
        memory_model="default",
        schedules=1,
        examples=[outcome(), outcome(status="slow")],
    )
    target = tmp_path / "new" / "table.json"
    write(target, table)
    assert read(target) == table
    assert [p.name for p in target.parent.iterdir()] == ["table.json"]


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="not a checkout of NVIDIA/cutlass"):
        main([f"--cutlass={tmp_path}"], "conformance")


def test_examples_are_named_once() -> None:
    assert len({(e.path, e.arch, e.arguments) for e in EXAMPLES}) == len(EXAMPLES)
    assert {e.arch for e in EXAMPLES} == {"sm_80", "sm_90a", "sm_120a"}


def test_the_committed_table_is_sound() -> None:
    path = ROOT / "results" / "conformance" / "cutlass-examples.json"
    if not path.is_file():
        pytest.skip("no table is committed")
    table = read(path)
    for o in table.examples:
        # What is found in an example of others is argued.
        assert bool(o.reason) == (o.status != "passed"), o.example
        assert bool(o.findings) == (o.status == "found"), o.example
