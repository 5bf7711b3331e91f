"""Pages rendered side by side are those that mkdocs renders one after the other."""

from __future__ import annotations

import logging
import os
import re
import time

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from generators.build import rendering

PAGES = 12
EXPLODES = """
from markdown.preprocessors import Preprocessor
from markdown.extensions import Extension

class Bomb(Preprocessor):
    def run(self, lines):
        if "bomb" in lines:
            raise ValueError("it went off")
        return lines

class BombExtension(Extension):
    def extendMarkdown(self, md):
        md.preprocessors.register(Bomb(md), "bomb", 1)

def makeExtension(**settings):
    return BombExtension(**settings)
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site whose pages link to each other, and what builds it in so many processes."""
    (tmp_path / "bomb_extension.py").write_text(EXPLODES)
    monkeypatch.syspath_prepend(str(tmp_path))
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Start\n\n::: tests.site\n")
    for i in range(PAGES):
        text = f"# Page {i}\n\n## Part\n\nTo [the next](p{(i + 1) % PAGES}.md#part).\n"
        (docs / f"p{i}.md").write_text(text)
    (tmp_path / "mkdocs.yml").write_text(
        f"site_name: Small\nhooks: ['{rendering.__file__}']\nvalidation: {{anchors: warn}}\n"
        "markdown_extensions: [bomb_extension]\nplugins: [mkdocstrings]\n"
        "theme: {name: material, font: false}\n"
    )

    def run(processes: int) -> dict[str, str]:
        monkeypatch.setattr(os, "cpu_count", lambda: processes)
        folder = tmp_path / f"site{processes}"
        config = load_config(str(tmp_path / "mkdocs.yml"), strict=True, site_dir=str(folder))
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
        return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*.html")}

    return tmp_path, run


def test_pages_are_the_same_however_many_processes_render_them(site):
    _, run = site
    alone = run(1)
    assert len(alone) == PAGES + 2
    assert run(3) == alone


@pytest.mark.parametrize("target", ["gone.md", "p1.md#gone"])
def test_a_link_that_leads_nowhere_fails_the_strict_build(site, target, caplog):
    tree, run = site
    for i in range(PAGES):
        (tree / "docs" / f"p{i}.md").write_text(f"# Page\n\nTo [it]({target}).\n")
    with caplog.at_level(logging.WARNING, "mkdocs"), pytest.raises(Abort, match="warnings"):
        run(3)
    assert sum(target in record.getMessage() for record in caplog.records) == PAGES


def test_a_page_that_cannot_be_rendered_is_named(site, caplog):
    tree, run = site
    for i in range(PAGES):
        (tree / "docs" / f"p{i}.md").write_text("bomb\n")
    with pytest.raises(Abort, match="BuildError"):
        run(3)
    assert re.search(r"p\d+\.md cannot be made: it went off", caplog.text)


def test_a_process_that_dies_is_said(site, monkeypatch, caplog):
    tree, run = site
    taken = tree / "taken"
    parent, render = os.getpid(), rendering.Page.render

    def die(page, config, files):
        if os.getpid() != parent:
            taken.touch()
            os._exit(1)
        while not taken.exists():  # Else no page may be left for the other process.
            time.sleep(0.01)
        render(page, config, files)

    monkeypatch.setattr(rendering.Page, "render", die)
    with pytest.raises(Abort, match="BuildError"):
        run(2)
    assert "a process that renders pages died" in caplog.text
