"""Every snippet of the references runs here, and nothing is reported about it."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

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
