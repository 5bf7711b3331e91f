"""Exercises: solutions are right, skeletons are not, and both are the same but for the gap."""

from __future__ import annotations

import runpy

import pytest

from generators.pages import exercises, lessons
from mla_var3.emulator import Options
from mla_var3.emulator.script import run_script
from mla_var3.interpreter.redirect import redirected
from tests.generators.checking import ROOT


def _run(path: str) -> list[object]:
    """What is found in a run of a script on a CPU."""
    if "cute_" in path:
        done = run_script(ROOT / path, (), Options(), "sm_90a")
        assert done.ended.error is None
        return list(done.diagnostics)
    with redirected() as reports:
        runpy.run_path(str(ROOT / path), run_name="__main__")
    return [found for report in reports for found in report.diagnostics]


@pytest.mark.parametrize("name", exercises.NAMES)
def test_a_solution_is_right_and_a_skeleton_is_not(name, capsys):
    assert _run(exercises.solution(name)) == []
    assert "right: True" in capsys.readouterr().out
    _run(exercises.skeleton(name))
    assert "right: False" in capsys.readouterr().out


def test_every_file_is_an_exercise():
    folder = ROOT / exercises.FOLDER
    for files in (folder.glob("*.py"), (folder / "solutions").glob("*.py")):
        assert {file.stem for file in files} == set(exercises.NAMES)


def test_a_solution_that_differs_outside_of_the_gap_is_an_error():
    gap = f"a\n    {exercises.GAP}\nb\n"
    assert exercises.filled_gap(gap, "a\n    x\n    y\nb\n") == "    x\n    y"
    with pytest.raises(ValueError, match="outside of the gap"):
        exercises.filled_gap(gap, "a\n    x\nc\n")


@pytest.mark.slow
def test_the_page_shows_each_with_its_command_and_solution(site):
    pages = {page.path: str(page.content) for page in lessons.pages(site)}
    text = pages["learn/exercises.md"]
    for name in exercises.NAMES:
        assert f"nox -s run -- {exercises.skeleton(name)}" in text
    assert text.count("<summary>") == len(exercises.NAMES)
    for page in ("index", "first-kernel", "from-zero", "lessons/index"):
        assert "exercises.md" in pages[f"learn/{page}.md"], page
