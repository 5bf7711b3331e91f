"""A prefix read once for all, beside a library that reads it for each sequence."""

from __future__ import annotations

from dataclasses import replace

from generators.mla import prefixes


def test_a_row_per_problem_with_one_query_token_among_them(site):
    rows = prefixes.text(site, site.link("serving.md")).splitlines()[2:]
    assert rows
    tokens = [row.split(" | ")[2] for row in rows]
    assert "1" in tokens
    assert all("](records/" in row and row.rstrip(" |").endswith(("er", "fast")) for row in rows)


def test_without_a_run_it_says_so(site):
    bare = replace(site, runs=(), earlier=())
    text = prefixes.text(bare, bare.link("serving.md"))
    assert text.startswith("No run timed")
