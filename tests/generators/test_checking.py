"""The checks of the other tests see what they look for."""

from __future__ import annotations

import pytest

from generators.write.page import Page
from tests.generators.checking import dead_links, see


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "words <img src=x onerror=alert(1)>",
        "[x](javascript:alert)",
        "<iframe src='a'></iframe>",
        '<script type="application/json">{}</script>',
        "*x*{: onclick=alert }",
    ],
)
def test_markup_that_runs_is_seen(text):
    assert see(Page("a.md", text)).scripts


def test_code_does_not_run():
    text = "`<script>alert(1)</script>`\n\n```html\n<script>alert(1)</script>\n```\n"
    assert see(Page("a.md", text)).scripts == []


def test_dead_links_are_seen():
    pages = [
        Page(
            "a/one.md", "[x](../b.md#part) [y](../b.md#none) [z](gone.md) [w](#none) <b id=q></b>"
        ),
        Page("b.md", "## Part\n\n[up](https://example.org) [one](a/one.md#q)\n"),
    ]
    assert list(dead_links(pages, pages)) == [
        "a/one.md: ../b.md#none (no such anchor)",
        "a/one.md: gone.md",
        "a/one.md: #none (no such anchor)",
    ]
