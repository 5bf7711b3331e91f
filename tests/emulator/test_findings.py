"""Findings in others' kernels: what a run shows of one, and how the remedy is judged."""

from pathlib import Path

import pytest

from mla_var3.emulator import findings
from mla_var3.emulator.diagnostics import Diagnostic, Site
from mla_var3.emulator.findings import Finding, Shown
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.scripts import Ended

ONE = Finding(
    title="a race",
    script="kernel.py",
    arguments="--m 1",
    arch="sm_100a",
    source="kernel.py",
    kind="race",
    at=("load(", "store("),
    happens=("It loads.", "It stores."),
    follows="Wrong values.",
    smallest="One tile.",
    remedy="A barrier.",
    edits=({"find": "store(x)", "put": "sync(); store(x)"},),
)
SOURCE = "load(x)\nstore(x)\nend()\n"


def reported(script: Path, lines: tuple[int, int] = (2, 1), kind: str = "race") -> Diagnostic:
    at, other = (Site(str(script), line, 0, "st") for line in lines)
    return Diagnostic(kind, f"of {script}", at, other)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.py").write_text(SOURCE)
    return tmp_path


def run_as(monkeypatch: pytest.MonkeyPatch, *found: tuple[tuple[int, int], str]) -> list[str]:
    """Scripts report this where no barrier was added; returns the texts that ran."""
    texts: list[str] = []

    def run(finding, script, folder=None):
        texts.append(script.read_text())
        fixed = "sync()" in texts[-1]
        return ([] if fixed else [reported(script, *x) for x in found]), True

    monkeypatch.setattr(findings, "_run", run)
    return texts


def test_a_finding_is_shown_by_kind_and_lines_and_gone_with_the_remedy(monkeypatch, folder):
    texts = run_as(monkeypatch, ((3, 1), "race"), ((2, 1), "deadlock"), ((2, 1), "race"))
    shown = findings.show("k", ONE, folder)
    assert shown.lines == (2, 1)
    assert shown.report.startswith("race: of kernel.py")
    assert shown.passes
    left = findings.mended("k", ONE, folder)
    assert left.mended == 0
    assert texts == [SOURCE, SOURCE.replace("store", "sync(); store")]
    assert shown.model_copy(update={"mended": 0}).ok
    assert not shown.ok


def test_what_is_not_reported_any_more_is_said_to_be_so(monkeypatch, folder):
    run_as(monkeypatch, ((3, 1), "race"))
    shown = findings.show("k", ONE, folder)
    assert not shown.ok
    assert "no report of this kind" in str(shown)


def test_an_edit_that_does_not_fit_ends_in_a_sentence(monkeypatch, folder):
    run_as(monkeypatch)
    (folder / "kernel.py").write_text("nothing\n")
    with pytest.raises(EmulatorError, match="occurs 0 times"):
        findings.mended("k", ONE, folder)


def test_a_module_of_an_installed_package_is_replaced(monkeypatch, tmp_path):
    import json.decoder

    before = json.decoder
    copy = tmp_path / "decoder.py"
    copy.write_text("VALUE = 3\n")
    monkeypatch.setitem(findings.sys.modules, "json.decoder", before)
    monkeypatch.setattr(json, "decoder", before)
    findings._replace("json.decoder", copy)
    assert json.decoder.VALUE == 3
    asked = ONE.model_copy(update={"source": "module:json.nothing"})
    with pytest.raises(EmulatorError, match=r"no module json\.nothing"):
        findings._source(asked, tmp_path)


def test_a_script_that_fails_its_own_check_is_kept_and_one_that_crashes_is_not(monkeypatch, folder):
    pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")
    script = folder / "kernel.py"
    for error, passes in ((None, True), (AssertionError("off"), False)):
        monkeypatch.setattr(findings.scripts, "run", lambda *_, e=error: Ended(error=e))
        assert findings._run(ONE, script) == ([], passes)
    monkeypatch.setattr(findings.scripts, "run", lambda *_: Ended(error=ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        findings._run(ONE, script)


def test_what_is_listed_was_shown_and_every_remedy_mends():
    listed, shown = findings.read(), {one.finding: one for one in findings.table().findings}
    assert set(listed) == set(shown)
    assert [key for key, one in shown.items() if not one.ok] == []
    for key, one in listed.items():
        assert one.command.startswith("nox -s run -- --arch=sm_"), key
        assert shown[key].report.startswith(f"{one.kind}: ")


def test_a_key_that_is_not_listed_ends_in_a_sentence():
    with pytest.raises(EmulatorError, match="no finding's key contains 'nothing'"):
        findings.main(["--only=nothing"], "prog")


def test_a_table_that_is_not_there_ends_in_a_sentence(tmp_path):
    with pytest.raises(EmulatorError, match="cannot be read"):
        findings.table(tmp_path / "none.json")


def test_a_line_says_whether_it_is_shown():
    shown = Shown(finding="k", report="race: x", lines=(2, 1), mended=1)
    assert str(shown) == "BAD k: shown at lines 2, 1, there still with the remedy"
    assert str(shown.model_copy(update={"mended": 0})).startswith(
        "ok  k: shown at lines 2, 1, gone"
    )


@pytest.mark.parametrize("works", [True, False])
def test_every_finding_is_run_as_it_is_and_mended(works, monkeypatch, tmp_path, capsys):
    """What is not asked for stays in the table, and the table keeps the order of the list."""
    listed = {"first": ONE, "second": ONE, "third": ONE}
    old = Shown(finding="third", report="race: old", lines=(1, 2), mended=0)
    path = tmp_path / findings.TABLE
    path.parent.mkdir(parents=True)
    path.write_text(findings.Table(findings=(old,)).model_dump_json())

    def show(key, finding, folder):
        if not works and key == "second":
            raise EmulatorError("it does not run\nat all")
        return Shown(finding=key, report=f"race: {key}", lines=(2, 1), passes=True)

    def mended(key, finding, folder):
        if not works and key == "first":
            raise ValueError("no fit")
        return Shown(finding=key, mended=0)

    monkeypatch.setattr(findings, "read", lambda: listed)
    monkeypatch.setattr(findings, "repo_root", lambda: tmp_path)
    monkeypatch.setattr(findings, "sources", lambda suite, checkout: tmp_path)
    monkeypatch.setattr(findings, "show", show)
    monkeypatch.setattr(findings, "mended", mended)
    assert findings.main(["--only=s"], "prog") == (0 if works else 1)
    said = capsys.readouterr().out.splitlines()
    rows = findings.table(path).findings
    assert [r.finding for r in rows] == ["first", "second", "third"]
    assert rows[2] == old
    if works:
        assert said == [
            "ok  first: shown at lines 2, 1, gone with the remedy",
            "ok  second: shown at lines 2, 1, gone with the remedy",
            f"3 of 3 shown and mended; wrote {findings.TABLE}",
        ]
        assert [r.mended for r in rows] == [0, 0, 0]
    else:
        assert [r.mended for r in rows] == [-1, 0, 0]
        assert rows[1].refused == "EmulatorError: it does not run"
        assert said == [
            "BAD first: shown at lines 2, 1, there still with the remedy",
            "BAD second: EmulatorError: it does not run",
            f"1 of 3 shown and mended; wrote {findings.TABLE}",
        ]


def test_the_copy_of_a_module_is_run_in_its_place(monkeypatch, folder, tmp_path):
    """The script stays where it is, and other modules of its folder are found."""
    seen = []

    def run(finding, script, where=None):
        seen.append((script, where, str(folder) in findings.sys.path))
        return [], True

    installed = ONE.model_copy(update={"source": "module:kernel"})
    monkeypatch.setattr(findings, "_run", run)
    monkeypatch.setattr(findings, "_source", lambda finding, where: where / "kernel.py")
    replaced = []
    monkeypatch.setattr(
        findings, "_replace", lambda name, copy: replaced.append((name, copy.read_text()))
    )
    assert findings.mended("k", installed, folder).mended == 0
    assert seen == [(folder / "kernel.py", folder, True)]
    assert replaced == [("kernel", SOURCE.replace("store", "sync(); store"))]
    assert findings._source is not None
    monkeypatch.undo()
    assert findings._source(ONE, folder) == folder / "kernel.py"
    assert (
        findings._source(ONE.model_copy(update={"source": "module:json.decoder"}), folder).name
        == "decoder.py"
    )


def test_a_refusal_is_told_in_its_first_line() -> None:
    assert findings._sentence(ValueError("what it is\nand more")) == "ValueError: what it is"
    assert findings._sentence(KeyError()) == "KeyError: "
