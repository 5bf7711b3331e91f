"""Suites of scripts: each run in a process of its own, explained, and kept in a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from mla_var3.blobs import blob_of
from mla_var3.errors import EmulatorError, ToolchainError, UsageError
from mla_var3.examples.pin import load
from mla_var3.gpuless import scripts, suite_scripts, tables
from mla_var3.gpuless.suite_scripts import Choice, Product, Ran, examine_all
from mla_var3.gpuless.suites import Exempt, Outcome, Script, Scripts, Suite, find
from mla_var3.gpuless.tables import Case, Found
from mla_var3.paths import repo_root

RACE = Found(kind="race", message="two writes", at="k.py:3")
SUITE = Suite(
    name="some",
    repository="nowhere/at/all",
    commit="0" * 40,
    license="MIT",
    folder="inside",
    scripts=(Scripts(folder="a", arch="sm_80", runs=("one.py --n 1", "two.py")),),
    exceptions=(
        Exempt(test="a/two.py*", outcome=Outcome.REFUSED, reason="It has to: {said}."),
        Exempt(test="a/one.py*", outcome=Outcome.FOUND, finding="race", reason="By its line 3."),
    ),
)


def examine(script: Script) -> Ran:
    ended = scripts.run(Path(script.path), script.arguments.split())
    if ended.error is not None:
        raise ended.error
    return Ran([RACE] if "race" in Path(script.path).read_text() else [], 0.5, 2, 9)


def planted(folder: Path, one: str = "x = 1\n", two: str = "x = 1\n") -> Path:
    for name, text in (("one", one), ("two", two)):
        place = folder / "inside" / "a" / f"{name}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def outcomes(folder: Path, **choice: object) -> dict[str, Case]:
    chosen = Choice(limit=60, **choice)
    inside = folder.resolve() / SUITE.folder
    cases = examine_all(SUITE, inside, SUITE.runs(), Product(examine), chosen)
    return {case.test: case for case in cases}


def test_what_a_script_comes_to_is_explained(tmp_path: Path) -> None:
    refuses = "from mla_var3.errors import EmulatorError\nraise EmulatorError('no such thing')\n"
    found = outcomes(planted(tmp_path, "# race\n", refuses), workers=2)
    one, two = found["a/one.py --n 1"], found["a/two.py"]
    assert (one.outcome, one.findings, one.why) == ("found", (RACE,), "By its line 3.")
    assert (one.clusters, one.instructions, one.arch) == (2, 9, "sm_80")
    assert two.outcome == "refused"
    assert two.why.startswith("It has to: EmulatorError: no such thing (two.py:2)")
    assert not tables.made(SUITE, found.values(), {}).unexplained
    failed = outcomes(planted(tmp_path, "assert 1 == 2\n", "import no_such_module\n"))
    assert failed["a/one.py --n 1"].outcome == "failed"
    assert failed["a/one.py --n 1"].reason == "AssertionError:  (one.py:1)"
    assert failed["a/two.py"].outcome == "refused"


@pytest.mark.slow
def test_a_script_that_takes_too_long_and_one_that_is_not_there(tmp_path: Path) -> None:
    folder = planted(tmp_path, "while True: pass\n")
    (folder / "inside/a/two.py").unlink()
    chosen = Choice(workers=2, limit=5)
    found = {
        case.test: case
        for case in examine_all(SUITE, folder / "inside", SUITE.runs(), Product(examine), chosen)
    }
    assert found["a/one.py --n 1"].outcome == "slow"
    assert found["a/one.py --n 1"].reason == "took longer than 5 s"
    assert found["a/two.py"].outcome == "failed"


def test_what_ended_is_kept_while_its_file_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    folder = planted(tmp_path / "checkout")
    ran: list[str] = []

    def examined(_suite, inside, chosen, *_):
        for script in chosen:
            ran.append(script.test)
            blob = blob_of(inside / script.path)
            yield Case(test=script.test, arch=script.arch, outcome="passed", blob=blob)

    monkeypatch.setattr(suite_scripts, "examine_all", examined)
    choice = Choice(checkout=folder, resume=True)
    both = [script.test for script in SUITE.runs()]
    for settings, after in (({}, both), ({}, both)):
        assert suite_scripts.run(SUITE, Product(examine, settings), choice) == 0
        assert ran == after
    planted(folder, two="x = 2\n")
    suite_scripts.run(SUITE, Product(examine), choice)
    assert ran == [*both, both[1]]
    suite_scripts.run(SUITE, Product(examine, {"schedules": 2}), choice)
    assert len(ran) == 5, "other schedules are another table"
    table = tables.read(tables.path_of("some"))
    assert [case.test for case in table.cases] == both
    assert table.settings == {"schedules": 2}


def test_a_run_of_some_keeps_what_others_came_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    folder = planted(tmp_path / "checkout")

    def examined(_suite, inside, chosen, *_):
        for script in chosen:
            blob = blob_of(inside / script.path)
            yield Case(test=script.test, arch=script.arch, outcome="passed", blob=blob)

    monkeypatch.setattr(suite_scripts, "examine_all", examined)
    suite_scripts.run(SUITE, Product(examine), Choice(checkout=folder))
    both = [script.test for script in SUITE.runs()]
    before = tables.read(tables.path_of("some"))
    planted(folder, "y = 1\n", two="x = 2\n")
    some = Choice(checkout=folder, only="two")
    suite_scripts.run(SUITE, Product(examine), some)
    now = tables.read(tables.path_of("some"))
    assert [case.test for case in now.cases] == both
    assert now.cases[0] == before.cases[0], "a row says which file it is of"
    assert now.cases[1].blob != before.cases[1].blob
    capsys.readouterr()
    for chosen in (some, Choice(checkout=folder, sample=1)):
        suite_scripts.run(SUITE, Product(examine, {"schedules": 2}), chosen)
        assert tables.read(tables.path_of("some")) == now
    # A package more keeps the rows, another version does not take them along.
    monkeypatch.setattr(tables, "made", _with(tables.made, {"more": "1.0"}))
    suite_scripts.run(SUITE, Product(examine), some)
    assert len(tables.read(tables.path_of("some")).cases) == 2
    now = tables.read(tables.path_of("some"))
    monkeypatch.setattr(tables, "made", _with(tables.made, {"more": "2.0"}))
    suite_scripts.run(SUITE, Product(examine), some)
    assert tables.read(tables.path_of("some")) == now
    assert "stays as it is: it is of more 1.0" in capsys.readouterr().out


def _with(made, toolchain):
    def more(*arguments):
        table = made(*arguments)
        return table.model_copy(update={"toolchain": {**table.toolchain, **toolchain}})

    return more


def test_what_cannot_be_run_is_one_sentence(tmp_path: Path) -> None:
    folder = planted(tmp_path)
    with pytest.raises(UsageError, match="must be positive"):
        suite_scripts.run(SUITE, Product(examine), Choice(checkout=folder, workers=0))
    with pytest.raises(UsageError, match="no script of some has 'gemm' in its name"):
        suite_scripts.run(SUITE, Product(examine), Choice(checkout=folder, only="gemm"))
    with pytest.raises(ToolchainError, match="there is no checkout of some"):
        suite_scripts.run(SUITE, Product(examine), Choice(checkout=tmp_path / "inside"))


def test_examples_are_of_the_pinned_tree_and_named_once() -> None:
    suite = find("cutlass-examples")
    runs = suite.runs()
    assert len({(r.test, r.arch) for r in runs}) == len(runs)
    assert {r.arch for r in runs} == {"sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120a"}
    pin = load(repo_root())
    assert (suite.commit, suite.repository) == (pin.commit, pin.address)
    assert suite.folder in pin.folders


@pytest.mark.parametrize("name", ["cutlass-examples", "cutlass-options"])
def test_the_committed_table_is_sound(name: str) -> None:
    table = tables.read(tables.path_of(name))
    for case in table.cases:
        # What is found in an example of others is argued.
        assert bool(case.why) == (case.outcome is not Outcome.PASSED), case.test
        assert bool(case.findings) == (case.outcome is Outcome.FOUND), case.test


def test_a_table_of_somebody_else_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for text in ("[]", "{", '{"version": 2, "suite": 3}', "\0" * 9):
        path.write_text(text)
        with pytest.raises(ToolchainError, match=r"^the table of a suite "):
            tables.read(path)


def test_the_sentence_of_an_error_says_what_differs_and_where() -> None:
    try:
        raise AssertionError(
            "Tensors differ\n\nMismatched elements: 1 / 2\nGreatest abs 3 at index 4"
        )
    except AssertionError as error:
        said = suite_scripts.sentence(error)
    assert said == "AssertionError: Tensors differ; Mismatched elements: 1 / 2; Greatest abs 3"
    with pytest.raises(EmulatorError):
        raise EmulatorError(said)
