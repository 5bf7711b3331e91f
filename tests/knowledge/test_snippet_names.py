"""Every name in a pattern's snippet is made there, named in a comment, or explained below it."""

from __future__ import annotations

import pytest

from mla_var3.knowledge import snippets
from mla_var3.knowledge.pages import Catalogue, load_all
from mla_var3.paths import repo_root

KNOWN = snippets.meanings(repo_root())


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_all(repo_root())


def _text(document) -> str:
    return document.path.read_text(encoding="utf-8")


def test_every_name_of_every_pattern_is_explained(catalogue: Catalogue):
    missing = {
        page.pattern.id: found
        for page in catalogue.patterns
        if (found := snippets.unexplained(_text(page), KNOWN, page.pattern.scope, page.pattern.id))
    }
    assert not missing


def test_every_meaning_is_of_a_name_that_a_snippet_takes(catalogue: Catalogue):
    used: dict[str, set[str]] = {}
    for page in catalogue.patterns:
        names = {name for block in snippets.blocks(_text(page)) for name in snippets.taken(block)}
        for table in (page.pattern.id, page.pattern.scope, "shared"):
            used.setdefault(table, set()).update(names)
    idle = {
        table: left
        for table, names in KNOWN.items()
        if (left := sorted(set(names) - used.get(table, set())))
    }
    assert not idle


@pytest.mark.parametrize(
    ("snippet", "names"),
    [
        ("a = b + c  # c is said\n", ["b"]),
        ("for i in range(n):\n    d = i\n", ["n"]),
        ("import x.y as z\ndef f(p): return p + z\n", []),
        ("def f(..., p):\n    return p + q\n", ["q"]),
        ("ct.load(z, (j, 0))\n", ["z", "j"]),
    ],
)
def test_names_that_come_from_around(snippet, names):
    assert snippets.taken(snippet) == names


def test_a_page_says_the_nearest_meaning_below_its_snippet():
    page = "Text.\n\n```python\nout = a + b\n```\n\nMore.\n"
    known = {"shared": {"a": "one", "b": "two"}, "o1": {"a": "its own"}}
    assert snippets.explained(page, known, "shared", "o1") == (
        "Text.\n\n```python\nout = a + b\n```\n\n"
        "Names from around it: `a`, its own; `b`, two.\n\nMore.\n"
    )
    assert snippets.unexplained(page, {}, "shared", "o1") == ["a", "b"]
