"""What stands in for a part of the theme says what the theme says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

OVERRIDES = Path(__file__).parents[3] / "docs/overrides"
ENTRY = "partials/nav-item.html"
FEATURES = ["navigation.indexes", "navigation.prune", "navigation.tabs"]
SUMMARY = """\
* [Home](index.md)
* [Words](words/index.md)
    * [One & two](words/one.md)
    * Deeper
        * [Three](words/three.md)
        * [Four](words/four.md)
    * [Chapter](words/chapter/index.md)
        * [Five](words/chapter/five.md)
* Without a page
    * [Six](six.md)
"""


def _navigations(tree: Path, overrides: Path) -> dict[str, str]:
    """The navigation of each page, whatever its blanks."""
    config = {
        "site_name": "Small",
        "theme": {
            "name": "material", "font": False, "custom_dir": str(overrides), "features": FEATURES,
        },
        "plugins": [{"literate-nav": {"nav_file": "SUMMARY.md"}}, "section-index"],
        "repo_url": "https://example.org",
        "exclude_docs": "SUMMARY.md",
    }  # fmt: skip
    (tree / "mkdocs.yml").write_text(yaml.safe_dump(config))
    site = tree / f"site-{overrides.name}"
    build(load_config(str(tree / "mkdocs.yml"), strict=True, site_dir=str(site)))
    return {
        page.relative_to(site).as_posix(): _navigation(page.read_text())
        for page in site.rglob("index.html")
    }


def _navigation(page: str) -> str:
    _, mark, rest = page.partition('<nav class="md-nav md-nav--primary')
    shown, end, _ = rest.partition('<div class="md-sidebar')
    assert mark
    assert end
    text = re.sub(r"\s+", " ", shown)
    # Blanks between tags, around words and in lists of classes do not show.
    return re.sub(r"\s*([<>\"])\s*", r"\1", text)


def _plant(tree: Path, summary: str, text: str) -> None:
    """Pages of a navigation, each a title and ``text``."""
    docs = tree / "docs"
    for name in re.findall(r"\(([^)]+)\)", summary):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(f"# {name}\n\n{text}\n")
    (docs / "SUMMARY.md").write_text(summary)


def _without_folded(navigation: str) -> str:
    """A navigation but for where its folded sections lead."""
    return re.sub(r"(md-nav__item--pruned [^>]*><a href=)\"[^\"]*", r"\1", navigation)


def test_a_folded_section_leads_to_its_own_page(tmp_path):
    _plant(tmp_path, SUMMARY, "Text.")
    shown = _navigations(tmp_path, OVERRIDES)["words/one/index.html"]
    folded = re.findall(r'md-nav__item--pruned [^>]*><a href="([^"]*)', shown)
    assert folded == ["../three/", "../chapter/", "../../six/"]


def test_the_navigation_is_the_themes(tmp_path):
    _plant(tmp_path, SUMMARY, "## Part\n\nText.")
    theirs = tmp_path / "theirs"
    shutil.copytree(OVERRIDES, theirs)
    (theirs / ENTRY).unlink()
    own, wanted = _navigations(tmp_path, OVERRIDES), _navigations(tmp_path, theirs)
    assert len(own) == SUMMARY.count("](")
    # The theme leads past a folded section's own page to the first one below it.
    assert own != wanted
    assert {page: _without_folded(text) for page, text in own.items()} == {
        page: _without_folded(text) for page, text in wanted.items()
    }


def test_a_section_without_a_page_lists_its_first_child(tmp_path):
    summary = """\
* [Home](index.md)
* [Kernels](kernels/index.md)
    * Language
        * [first](kernels/first/index.md)
            * [v0](kernels/first/v0.md)
        * [second](kernels/second/index.md)
            * [v0](kernels/second/v0.md)
"""
    _plant(tmp_path, summary, "Text.")
    shown = _navigations(tmp_path, OVERRIDES)["kernels/second/v0/index.html"]
    titles = re.findall(r'<span class="md-ellipsis">(\w+)</span>', shown)
    assert titles[titles.index("Language") :] == ["Language", "first", "second", "v0"]
