"""Hostile texts: lint names each in every kind of content and in every field, before a build."""

from __future__ import annotations

import json

import pytest

from mla_var3.knowledge import sanitizing
from mla_var3.knowledge.checks.hostile import ActiveContent
from mla_var3.knowledge.linting import lint
from tests.hostile_pages import DIRECTIVES, INCLUDES, TEXTS

from .trees import DEVLOG, PAGE_TEXT

ALL = {**TEXTS, **INCLUDES, **{f"directive {name}": t for name, t in DIRECTIVES.items()}}
#: How a text stands in each kind of content.
KINDS = {
    "knowledge/optimizations/h{n}.md": lambda text: PAGE_TEXT.replace("None known.", text),
    "knowledge/workloads/h{n}.md": lambda text: f"---\ntitle: x\n---\n\n{text}\n",
    "docs/glossary/h{n}.md": lambda text: f"---\nterm: x\n---\n{text}\n",
    "docs/learn/h{n}.md": lambda text: f"# Lesson\n\n{text}\n",
    "docs/h{n}.md": lambda text: f"---\nfound_by: [{json.dumps(text)}]\n---\n# x\n",
    "knowledge/learning-paths/h{n}.toml": lambda text: f"[[steps]]\nsee = {json.dumps(text)}\n",
    "knowledge/examples/h{n}.toml": lambda text: f"[a.b]\nwords = [{json.dumps(text)}]\n",
    "knowledge/devices/h{n}.toml": lambda text: f"[figure]\nsource = {json.dumps(text)}\n",
    "examples/lessons/h{n}.toml": lambda text: f"[[lessons]]\nanswer = {json.dumps(text)}\n",
    "results/compiles/h{n}.json": lambda text: json.dumps({"rows": [{"said": text}]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_lint_names_each_hostile_text(tree, kind):
    names = {}
    for n, (name, text) in enumerate(ALL.items()):
        if kind.endswith(("toml", "json")) and not text.isprintable() and "\x02" in text:
            continue  # No TOML holds a control character.
        names[kind.format(n=n)] = name
        tree.write(kind.format(n=n), KINDS[kind](text))
    found = {finding.file for finding in lint(tree.catalogue(), [ActiveContent()])}
    assert [names[file] for file in names.keys() - found] == []
    assert len(names) >= 60


@pytest.mark.parametrize("name", ALL)
def test_a_devlog_with_one_is_named(tree, name):
    tree.replace(DEVLOG, "Introduction.", ALL[name])
    found = lint(tree.catalogue(), [ActiveContent()])
    assert {finding.file for finding in found} == {DEVLOG}


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_of_one_is_left_that_could_run(name):
    made = sanitizing.renderer(sanitizing.repo_root()).reset().convert(TEXTS[name])
    for text in (TEXTS[name], made):
        kept = sanitizing.sanitized(text)
        tags = [piece for piece in sanitizing._pieces(kept) if piece.startswith("<")]
        assert not [tag for tag in tags if " on" in tag or "javascript:" in tag.lower()]
        assert not [tag for tag in tags if tag.startswith(("<script", "<style", "<iframe", "<img"))]
        assert sanitizing.sanitized(kept) == kept


@pytest.mark.parametrize(
    "text",
    [
        "a < b and `<script>`", "```html\n<script>\n```", "[x](https://e.org) and [y](source:k)",
        "| a |\n|:--|\n| 1 |", "!!! note\n    text", "$a < b$ and $$\nc\n$$", "- [x](../a.md#b)",
        "<https://e.org/a>", "`{: onclick=x}`", "`{%r1, %r2}`", '!!! note "Title"\n    text',
    ],
)  # fmt: skip
def test_what_markdown_makes_is_left_alone(text):
    assert sanitizing.faults(text) == []
