"""Suites of tests of others: read, explained, tabled, written; they themselves run on demand."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mla_var3.errors import ToolchainError, UnknownNameError
from mla_var3.gpuless import suites, tables
from mla_var3.gpuless.suite_tests import run, run_suite, tabulate
from mla_var3.gpuless.suites import Exempt, Outcome, Suite


def suite(**changes: Any) -> Suite:
    return Suite(
        name="some",
        repository="nowhere/at/all",
        commit="0" * 40,
        license="MIT",
        tests=("test_some.py",),
        exceptions=(
            Exempt(test="test_some.py::test_graph*", outcome=Outcome.REFUSED, reason="No GPU."),
            Exempt(test="test_some.py::test_case[1]", outcome=Outcome.FAILED, reason="Known."),
        ),
        **changes,
    )


def result(test: str, outcome: str = "passed", *errors: str, reason: str = "") -> dict[str, Any]:
    return {
        "test": f"test_some.py::{test}",
        "outcome": outcome,
        "reason": reason,
        "launches": 1,
        "errors": list(errors),
    }


RESULTS = [
    result("test_copy[1]"),
    result("test_copy[2]"),
    result("test_graph[a]", "failed", reason="no"),
    result("test_graph[b]", "failed", reason="no"),
    result("test_case[1]", "failed", reason="no"),
    result("test_case[2]", "failed", reason="assert 1 == 2"),
    result("test_found", "passed", "tile-outside at test_some.py:3"),
    result("test_later", "skipped", reason="not today"),
]


def test_a_table_explains_one_by_one() -> None:
    table = tabulate(suite(), RESULTS, sample=2)
    assert {k.value: n for k, n in table.counts().items()} == {
        "passed": 3,
        "refused": 2,
        "failed": 2,
        "skipped": 1,
    }
    assert table.launches == len(RESULTS)
    assert {c.test.split("::")[1]: c.cases for c in table.unexplained} == {
        "test_case": 1,
        "test_found": 1,
    }
    text = tables.describe(table)
    assert "3 passed, 2 refused, 2 failed, 1 skipped; 8 launches" in text
    assert "not explained: test_some.py::test_case (1): assert 1 == 2" in text
    assert "passed, with tile-outside at test_some.py:3" in text


def test_tables_are_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    table = tabulate(suite(), RESULTS, sample=None)
    path = tables.write(table)
    assert path == tmp_path / "results" / "conformance" / "some.json"
    assert tables.read(path) == table
    path.write_text("{}")
    with pytest.raises(ToolchainError, match="the table of a suite"):
        tables.read(path)


def test_the_suites_of_the_repository() -> None:
    found = suites.suites()
    examples = {"cutlass-examples", "cutlass-options"}
    decode = {"tokenspeed-mla", "flashinfer-mla"}
    assert set(found) == {"cutile-python", "tilegym", "strangers", *decode, *examples}
    for path in found.values():
        read = suites.read_suite(path)
        assert all(len(e.reason.split()) > 4 for e in read.exceptions)
        assert bool(read.tests) != bool(read.scripts)
    for product, name in (("interpreter", "tokenspeed-mla"), ("emulator", "tilegym")):
        with pytest.raises(UnknownNameError, match=f"unknown suite '{name}'"):
            run(product, name, None, "", None)


def test_a_test_whose_report_is_argued_still_fails_where_it_is_wrong() -> None:
    argued = Exempt(test="test_some.py::test_found", outcome=Outcome.FOUND, reason="A known race.")
    exceptions = (*suite().exceptions, argued)
    known = suite().model_copy(update={"exceptions": exceptions})
    report = "race at a.py:3"
    right = tabulate(known, [result("test_found", "passed", report)], sample=None)
    assert not right.unexplained
    wrong = tabulate(known, [result("test_found", "failed", report, reason="no")], sample=None)
    assert wrong.counts()[Outcome.FAILED] == 1
    assert wrong.unexplained


def test_a_table_names_what_the_tests_import() -> None:
    assert suites.pins(suites.find("tokenspeed-mla"))["tokenspeed-mla"] == "2.0.0"
    assert suites.pins(suite()) == {}


@pytest.mark.parametrize(
    ("name", "passed"),
    [("cutile-python", 100), ("tilegym", 100), ("tokenspeed-mla", 100), ("flashinfer-mla", 3)],
)
def test_a_recorded_table_is_of_the_pinned_sources_and_explains_what_failed(
    name: str, passed: int
) -> None:
    table, pinned = tables.read(tables.path_of(name)), suites.find(name)
    assert (table.commit, table.product) == (pinned.commit, pinned.product)
    assert suites.pins(pinned).items() <= table.toolchain.items()
    assert table.counts()[Outcome.PASSED] > passed
    assert not table.unexplained
    assert not any("/" in word[:1] for case in table.cases for word in case.reason.split('"'))


def test_bad_suites_and_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.toml").write_text("[suite]\ncommit = 'x'\n")
    with pytest.raises(ToolchainError, match="is not a suite"):
        suites.read_suite(tmp_path / "bad.toml")
    with pytest.raises(ToolchainError, match="there is no checkout of some"):
        suites.sources(suite(), tmp_path / "nowhere")
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    with pytest.raises(ToolchainError, match="git fetch failed"):
        suites.sources(suite(), None)


def test_sources_are_fetched_once_and_at_their_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=some", "-c", "user.email=some@example.org"]
        return subprocess.check_output(["git", *identity, *arguments], cwd=theirs, text=True)

    def commit(text: str) -> str:
        (theirs / "test_some.py").write_text(text)
        git("add", ".")
        git("commit", "--quiet", f"--message={text}")
        return git("rev-parse", "HEAD").strip()

    git("init", "--quiet")
    first = suite().model_copy(update={"repository": str(theirs), "commit": commit("first")})
    second = first.model_copy(update={"commit": commit("second")})
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path / "ours"))
    for pinned, text in ((second, "second"), (first, "first")):
        assert (suites.sources(pinned, None) / "test_some.py").read_text() == text
    shutil.rmtree(theirs)
    assert suites.sources(first, None).is_dir()
    with pytest.raises(ToolchainError, match="git fetch failed"):
        suites.sources(second, None)


@pytest.mark.slow
def test_a_suite_runs(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "def test_one(): pass\n\ndef test_graph(): raise ValueError('no graphs')\n"
    )
    table = run_suite("interpreter", suite(), tmp_path)
    assert [(f.passed, f.refused) for f in table.files] == [(1, 1)]
    assert table.cases[0].explained == "No GPU."
    with pytest.raises(ToolchainError, match="no test of some ran"):
        run_suite("interpreter", suite(), tmp_path, only="nothing")
