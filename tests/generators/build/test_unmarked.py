"""Text without markup is left alone; all other text is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown import Markdown
from mkdocs.config import load_config

NAME = "generators.build.unmarked"


@pytest.fixture(scope="module")
def both():
    """Markdown as the site has it, with the extension and without."""
    config = load_config(str(Path(__file__).parents[3] / "mkdocs.yml"))
    named = [name for name in config.markdown_extensions if isinstance(name, str)]
    assert NAME in named
    others = [name for name in named if name != NAME]
    return [
        Markdown(extensions=extensions, extension_configs=config.mdx_configs)
        for extensions in (named, others)
    ]


WORDS = st.sampled_from(
    ["a", "tile", "*b*", "`c`", "$x^2$", "[d](e.md)", "<f>", "&amp;", "_g_", "\\*", "  \n", "\n",
     " ", "| h | i |", "\n\n", "---", "http://j.k", "<l@m.n>", "![o](p.png)", "{ #q }", "**r**"]
)  # fmt: skip


@given(parts=st.lists(WORDS, max_size=12))
def test_html_is_the_same(both, parts):
    text = " ".join(parts)
    ours, theirs = (markdown.reset().convert(text) for markdown in both)
    assert ours == theirs


def test_a_plain_cell_is_not_searched(both, monkeypatch):
    ours, _ = both
    searched = []
    inline = ours.treeprocessors["inline"]
    name = "_InlineProcessor__applyPattern"
    found = getattr(inline, name)
    monkeypatch.setattr(
        inline, name, lambda p, data, *a: searched.append(data) or found(p, data, *a)
    )
    ours.reset().convert("plain words\n\nand *these*\n")
    assert searched
    assert "plain words" not in searched
