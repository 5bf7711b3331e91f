from __future__ import annotations

import inspect
import re

import pytest

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge import metrics, reference
from mla_var3.knowledge.analysis import analyses
from mla_var3.knowledge.checks import CHECKS
from mla_var3.knowledge.directives import DIRECTIVES
from mla_var3.knowledge.markdown import slug
from mla_var3.paths import repo_root

FOLDER = repo_root() / reference.FOLDER


def text_of(page: str) -> str:
    return (FOLDER / page).read_text(encoding="utf-8")


def planted(root, text: str | None = None):
    """The three pages below a root, marked for their parts or with a text; the path of the last."""
    for page, parts in reference.PAGES.items():
        path = root / reference.FOLDER / page
        path.parent.mkdir(parents=True, exist_ok=True)
        marks = "\n".join(f"[//]: # (begin {p})\nOUTDATED\n[//]: # (end {p})" for p in parts)
        path.write_text(f"# Title\n\n{marks}\n\nTail.\n" if text is None else text)
    return path


def test_the_pages_are_fresh():
    assert reference.reference(repo_root(), check=True), "run nox -s knowledge -- reference"


def test_the_id_of_each_check_is_an_anchor_of_the_page():
    text = text_of("checks.md")
    anchors = {slug(heading) for heading in re.findall(r"^## (.*)$", text, re.MULTILINE)}
    assert anchors == {check.id for check in CHECKS}
    for check in CHECKS:
        part = text.split(f"## {check.id}\n\n")[1].split("\n## ")[0]
        assert part.startswith(inspect.cleandoc(type(check).__doc__))
        assert ("A finding is a warning." in part) is (check.severity == "warning")


def test_every_metric_directive_and_figure_is_on_its_page():
    text, listed = text_of("knowledge.md"), text_of("metrics.md")
    for metric in metrics.catalogue():
        assert f"| `{metric}` |" in listed
    for directive in DIRECTIVES.values():
        assert directive.usage in text
    for workload, found in analyses().items():
        for name in found.FIGURES:
            assert f"`analysis {workload} {name}" in text


def test_stale_parts_are_renewed(tmp_path):
    path = planted(tmp_path)
    assert not reference.reference(tmp_path, check=True)
    assert "OUTDATED" in path.read_text()
    assert not reference.reference(tmp_path, check=False)
    assert "OUTDATED" not in path.read_text()
    assert path.read_text().endswith("\n\nTail.\n")
    assert reference.reference(tmp_path, check=True)


@pytest.mark.parametrize(
    "text", ["", "[//]: # (begin checks)\n", "[//]: # (begin checks)\n[//]: # (end checks)\n" * 2]
)
def test_marks_that_match_nothing_are_errors(tmp_path, text):
    planted(tmp_path)
    path = tmp_path / reference.FOLDER / "checks.md"
    path.write_text(text)
    with pytest.raises(KnowledgeError, match="must hold the marks"):
        reference.reference(tmp_path, check=False)
    assert path.read_text() == text


def test_a_missing_page_is_an_error(tmp_path):
    with pytest.raises(KnowledgeError, match="cannot read"):
        reference.reference(tmp_path, check=True)
