"""Every snippet of the references runs here, and nothing is reported about it."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from mla_var3.app import run
from mla_var3.interpreter.redirect import run_script
from mla_var3.knowledge.references import cells
from mla_var3.paths import repo_root

CUTILE = sorted((repo_root() / "examples/api/cutile").glob("*.py"))


@pytest.mark.parametrize("file", CUTILE, ids=lambda file: file.stem)
def test_snippets_of_cutile_run_in_the_interpreter(file: Path, capsys) -> None:
    if "ct.launch" not in file.read_text():
        runpy.run_path(str(file))
        return
    reports, ended = run_script(file, [])
    assert ended.error is None
    assert not ended.code
    assert len(reports) >= len(cells.read(file, repo_root()))
    assert [report.diagnostics for report in reports if report.diagnostics] == []


@pytest.mark.parametrize("file", CUTILE, ids=lambda file: file.stem)
def test_a_cell_reads_without_those_before_it(file: Path) -> None:
    found = cells.read(file, repo_root())
    assert len(found) >= 2
    for cell in found:
        assert len(cell.code.splitlines()) <= 45
        assert any(isinstance(node, ast.FunctionDef) for node in ast.parse(cell.code).body)


def test_a_cell_knows_its_place_and_what_it_does_not_use(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text('"""Docstring."""\n\n# %% load Tile.__getitem__ store\nx = load(y)[0]\n')
    (cell,) = cells.read(file, tmp_path)
    assert (cell.names, cell.line, cell.code) == (
        ("load", "Tile.__getitem__", "store"), 4, "x = load(y)[0]"
    )  # fmt: skip
    assert cell.unused() == ["store"]


CUTE = sorted((repo_root() / "examples/api/cute").glob("*.py"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("file", CUTE, ids=lambda file: file.stem)
def test_snippets_of_the_cute_dsl_compile_and_run_in_the_emulator(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    if ".launch(" not in file.read_text() or "make_fake" in file.read_text():
        # By itself: the DSL keeps the arch that it was first asked for.
        done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    assert run.main(["--arch=sm_90", str(file)]) == 0
    said = capsys.readouterr().out
    assert "0 findings" in said
    assert "on sm_90: " in said


def test_a_layout_that_is_not_so_is_refused(tmp_path: Path, monkeypatch) -> None:
    """What a snippet asserts while it is traced is really looked at."""
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    text = (repo_root() / "examples/api/cute/layouts.py").read_text()
    assert "== (9, 10)" in text
    (tmp_path / "wrong.py").write_text(text.replace("== (9, 10)", "== (9, 11)"))
    with pytest.raises(AssertionError):
        runpy.run_path(str(tmp_path / "wrong.py"))


def test_a_whole_script_is_one_cell(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text('"""Docstring."""\n\nfrom cutlass import cute\n\ncute.copy(1)\n')
    (cell,) = cells.read(file, tmp_path)
    assert cell.whole
    assert (cell.line, cell.code) == (3, "from cutlass import cute\n\ncute.copy(1)")


def test_the_note_of_the_tcgen05_op_is_made_of_lines_of_its_script() -> None:
    """The script runs in ``tests/examples/test_shown.py``; the note leaves its comments out."""
    script = (repo_root() / "examples/blackwell/tcgen05.py").read_text(encoding="utf-8")
    there = {line.partition("  #")[0].strip() for line in script.splitlines()}
    reference = (repo_root() / "knowledge/references/cute/mma.toml").read_text(encoding="utf-8")
    note = reference.split('"cute.nvgpu.tcgen05.MmaF16BF16Op" = """')[1].split('"""')[0]
    lines = [line.strip() for block in note.split("```")[1::2] for line in block.splitlines()[1:]]
    assert len(lines) == 16
    assert set(lines) <= there


def test_the_note_of_the_wgmma_op_is_made_of_lines_of_its_script() -> None:
    """The script runs in ``tests/examples/test_shown.py``; the note leaves its comments out."""
    script = (repo_root() / "examples/hopper/wgmma.py").read_text(encoding="utf-8")
    there = {"", *(line.partition("  #")[0].strip() for line in script.splitlines())}
    reference = (repo_root() / "knowledge/references/cute/mma.toml").read_text(encoding="utf-8")
    note = reference.split('"cute.nvgpu.warpgroup.MmaF16BF16Op" = """')[1].split('"""')[0]
    lines = [line.strip() for block in note.split("```")[1::2] for line in block.splitlines()[1:]]
    assert len(lines) == 16
    assert set(lines) <= there


def test_the_top_of_the_pipelines_is_made_of_lines_of_its_scripts() -> None:
    """One runs above, the other in ``tests/examples/test_shown.py``."""
    there = {"", "..."}  # What is left out.
    for name in ("api/cute", "blackwell"):
        script = (repo_root() / "examples" / name / "pipelines.py").read_text(encoding="utf-8")
        there |= {line.strip() for line in script.splitlines()}
    reference = (repo_root() / "knowledge/references/cute/pipelines.toml").read_text("utf-8")
    intro = reference.partition('intro = """')[2].partition('"""')[0]
    lines = [line.strip() for block in intro.split("```")[1::2] for line in block.splitlines()[1:]]
    assert len(lines) == 37
    assert set(lines) <= there
