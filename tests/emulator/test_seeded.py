"""The list of seeded bugs, how edits are made, and what counts as reported at the right lines."""

from pathlib import Path

import pytest

from mla_var3.emulator import seeded
from mla_var3.emulator.diagnostics import Diagnostic, Site
from mla_var3.emulator.seeded import CLEAN, Bug
from mla_var3.errors import EmulatorError
from mla_var3.paths import repo_root

BUG = Bug(find="wait(x)", put="pass", kinds=("race",), at=("load(", "read("), why="no wait")


def test_there_are_enough_in_enough_kernels():
    subjects = seeded.read()
    bugs = [bug for subject in subjects.values() for bug in subject.bugs.values()]
    assert len(bugs) >= 60
    assert sum(not bug.strict for bug in bugs) >= 55
    assert sum(subject.version is not None for subject in subjects.values()) >= 4
    assert sum("examples/cute_sync" in (s.script or "") for s in subjects.values()) >= 6


def test_kernels_of_tensor_memory_have_bugs_enough():
    subjects = [s for s in seeded.read().values() if s.arch == "sm_100a"]
    bugs = [bug for subject in subjects for bug in subject.bugs.values()]
    assert len(subjects) >= 6
    assert len(bugs) >= 60
    assert sum(not bug.strict for bug in bugs) >= 50


def test_every_edit_of_our_sources_fits_and_moves_no_line():
    for subject in seeded.read().values():
        for bug in subject.bugs.values():
            file = bug.file or subject.script
            if file and not file.startswith(seeded.CUTLASS):
                text = (repo_root() / file).read_text()
                assert seeded.edited(text, bug)[0].count("\n") == text.count("\n")


def test_every_kind_is_one_that_reports_have():
    from mla_var3.emulator.diagnostics import KINDS

    kinds = {k for s in seeded.read().values() for b in s.bugs.values() for k in b.kinds}
    assert kinds <= set(KINDS)


@pytest.mark.parametrize("text", ["", "wait(x) wait(x)"])
def test_an_edit_must_fit_once(text: str):
    with pytest.raises(EmulatorError, match="needs exactly 1"):
        seeded.edited(text, BUG)


def test_an_edit_may_not_move_lines():
    with pytest.raises(EmulatorError, match="moves the lines"):
        seeded.edited("wait(x)", BUG.model_copy(update={"put": "a\nb"}))


@pytest.mark.parametrize(
    ("text", "said"),
    [("[", "cannot be read"), ("[ring]\nscript = 'x'", "bugs: Field required"), ("", None)],
)
def test_a_list_that_is_not_sound_ends_in_a_sentence(tmp_path: Path, text: str, said: str | None):
    path = tmp_path / "seeded.toml"
    path.write_text(text)
    if said is None:
        assert seeded.read(path) == {}
        return
    with pytest.raises(EmulatorError, match=said):
        seeded.read(path)


def found(folder: Path, kind: str, first: int, second: int | None, model: str) -> Diagnostic:
    """A report between two lines of a small source."""
    source = folder / "kernel.py"
    source.write_text("load(x)\npass\nread(x)\n")
    at = Site(str(source), first, 0, "ld")
    other = Site(str(source), second, 1, "st") if second else None
    return Diagnostic(kind, "m", at, other, model=model)


@pytest.mark.parametrize(
    ("kind", "lines", "counts"),
    [("race", (3, 1), True), ("race", (3, 2), False), ("deadlock", (3, 1), False)],
)
def test_a_report_counts_by_its_kind_and_both_lines(tmp_path, kind, lines, counts):
    report = found(tmp_path, kind, *lines, "default")
    outcome = seeded.judged("k", "b", BUG, [report], "right", "", {str(tmp_path): "here"})
    assert outcome.reported == (("default",) if counts else ())
    assert not outcome.ok, "the strict model must report it too"
    assert outcome.report is not None
    assert outcome.report.lines[0] == f"here/kernel.py:{lines[0]}"


def test_reported_under_both_models_is_well_and_a_deadlock_has_no_values(tmp_path):
    reports = [found(tmp_path, "race", 3, 1, m) for m in ("default", "strict")]
    reports.append(found(tmp_path, "deadlock", 2, None, "strict"))
    outcome = seeded.judged("k", "b", BUG, reports, "right", "", {})
    assert outcome.ok
    assert outcome.values == "none"


def test_an_unmodified_kernel_must_be_right_and_clean(tmp_path):
    assert seeded.judged("k", CLEAN, None, [], "right", "", {}).ok
    assert not seeded.judged("k", CLEAN, None, [], "wrong", "", {}).ok
    report = found(tmp_path, "race", 3, 1, "strict")
    assert not seeded.judged("k", CLEAN, None, [report], "right", "", {}).ok


def test_what_is_argued_of_a_kernel_does_not_count_under_the_strict_model(tmp_path):
    argued = seeded.Argued(kinds=("race",), at=("load(", "read("), why="no fence can stand there")
    reports = [found(tmp_path, "race", 3, 1, m) for m in ("default", "strict")]
    reports += [
        found(tmp_path, kind, 3, line, "strict") for kind, line in (("race", 2), ("deadlock", 1))
    ]
    kept = seeded.counted(reports, [argued])
    assert kept == [reports[0], *reports[2:]]


def test_an_argument_is_about_its_first_line_alone(tmp_path):
    """Reports between the other lines of an argument are of something else, and count."""
    argued = seeded.Argued(kinds=("race",), at=("load(", "read("), why="no fence can stand there")
    reports = [found(tmp_path, "race", line, other, "strict") for line, other in ((3, 3), (1, 3))]
    assert len(seeded.counted(reports, [argued])) == 1


def test_a_bug_that_did_not_run_is_not_well():
    assert not seeded.Outcome(kernel="k", bug="b", source="s", refused="no").ok


def test_a_table_survives_writing(tmp_path):
    outcome = seeded.judged("k", CLEAN, None, [], "right", "", {})
    table = seeded.save([outcome], tmp_path / "table.json")
    assert seeded.table(tmp_path / "table.json") == table
    assert seeded.summary(table.outcomes).startswith("0 seeded bugs in 0 kernels")
    with pytest.raises(EmulatorError, match="cannot be read"):
        seeded.table(tmp_path / "missing.json")


SEEN = {"bug": "b", "expected": ("strict",)}


@pytest.mark.parametrize(
    ("outcome", "ok", "said"),
    [
        ({"bug": CLEAN, "values": "right"}, True, "ok  k/clean: right and clean"),
        ({"bug": CLEAN, "values": "wrong"}, False, "BAD k/clean: wrong, {}"),
        (
            {"bug": CLEAN, "values": "right", "found": {"strict": 2}}, False,
            "BAD k/clean: right, {'strict': 2}",
        ),
        ({"bug": CLEAN, "values": "right", "refused": "no"}, False, "BAD k/clean: right, {} (no)"),
        (SEEN | {"values": "wrong"}, False, "BAD k/b: values wrong, reported by no model"),
        (
            SEEN | {"values": "right", "reported": ("default", "strict")}, True,
            "ok  k/b: values right, reported by default and strict",
        ),
    ],
)  # fmt: skip
def test_an_outcome_in_a_line(outcome, ok, said):
    made = seeded.Outcome(kernel="k", source="s", **outcome)
    assert made.ok is ok
    assert str(made).replace(CLEAN, "clean") == said
    assert made.key == f"k/{outcome['bug']}"


@pytest.mark.parametrize(("before", "line"), [("", 1), ("a\n", 2), ("a\nb\n\nc ", 4)])
def test_an_edit_says_at_which_line_it_begins(before: str, line: int):
    assert seeded.edited(f"{before}wait(x)\nwait(y)\n", BUG) == (f"{before}pass\nwait(y)\n", line)


def test_the_committed_table_is_read_where_no_other_is_named():
    assert seeded.table().outcomes
    assert seeded.table() == seeded.table(repo_root() / seeded.TABLE)
