"""The conformance table: written whole, read back, and each outcome named."""

from pathlib import Path

import pytest

from mla_var3.blobs import blob_of
from mla_var3.emulator import conformance
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


def test_what_ended_is_kept_while_its_file_is_the_same(tmp_path: Path, monkeypatch) -> None:
    same, other = EXAMPLES[0], EXAMPLES[3]
    folder = tmp_path / conformance.FOLDER
    for example in (same, other):
        (folder / example.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / example.path).write_text("x = 1\n")
    ran: list[str] = []

    def examine_all(_root, chosen, _c):
        for e in chosen:
            ran.append(e.path)
            blob = blob_of(folder / e.path)
            yield outcome(example=e.path, arch=e.arch, arguments=e.arguments, blob=blob)

    monkeypatch.setattr(conformance, "examine_all", examine_all)
    monkeypatch.setattr(conformance, "EXAMPLES", [same, other])
    flags = [f"--cutlass={tmp_path}", f"--out={tmp_path}/table.json", "--resume"]
    assert main(flags, "conformance") == 0
    assert main(flags, "conformance") == 0
    assert ran == [same.path, other.path]
    (folder / other.path).write_text("x = 2\n")
    assert main(flags, "conformance") == 0
    assert ran == [same.path, other.path, other.path]
    assert main([*flags, "--seeds=2"], "conformance") == 0
    assert len(ran) == 5, "other schedules are another table"


def test_an_example_that_takes_too_long_and_one_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("cutlass")
    (tmp_path / "endless.py").write_text("while True: pass\n")
    chosen = [conformance.Example("endless.py", "sm_80"), conformance.Example("no.py", "sm_80")]
    asked = conformance.Conformance(workers=2, limit=5)
    found = {o.example: o for o in conformance.examine_all(tmp_path, chosen, asked)}
    assert (found["endless.py"].status, found["no.py"].status) == ("slow", "refused")
    assert found["endless.py"].reason == "took longer than 5 s"


def test_no_worker_is_refused(tmp_path: Path) -> None:
    (tmp_path / conformance.FOLDER).mkdir(parents=True)
    with pytest.raises(EmulatorError, match="must be positive"):
        main([f"--cutlass={tmp_path}", "--workers=0"], "conformance")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, "\0", '{"dsl": 1}'])
def test_a_table_that_is_none_is_one_sentence(tmp_path, text):
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(EmulatorError, match="table") as caught:
        read(path)
    assert "\n" not in str(caught.value)
