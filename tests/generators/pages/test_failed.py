"""The page of what failed: every negative entry, with times that lead to records, and why."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from generators.pages import failed, home, kernels, tried
from tests.generators.checking import see


def _rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| [")]


def test_every_negative_entry_is_an_idea_with_a_reason(site):
    (page,) = failed.pages(site)
    ideas, _, slower = str(page.content).partition("## Slower than")
    rows = _rows(ideas)
    wanted = {
        (devlog.name.rsplit("/", 2)[-2], entry.version)
        for devlog in site.catalogue.devlogs.values()
        for entry in devlog.entries
        if tried.is_negative(entry)
    }
    assert len(wanted) > 5
    assert len(rows) >= len(wanted)
    assert f"**{len(rows)} ideas" in ideas
    for design, version in wanted:
        mine = [row for row in rows if f"[{version}](" in row and f"/{design}/" in row]
        assert mine, (design, version)
        for row in mine:
            assert len(row.split(" | ")[-1].strip(" |").split()) > 5, row
    assert _rows(slower)
    assert "../records/" in ideas
    assert all("](../records/" in row for row in _rows(slower))


def test_a_time_without_a_pair_of_records_says_so(site):
    bare = replace(site, runs=(), earlier=())
    (page,) = failed.pages(bare)
    assert "## Slower" not in page.content
    assert all("no pair of times in a record" in row for row in _rows(str(page.content)))


@pytest.mark.slow
def test_home_and_the_kernels_lead_there(site):
    (front,) = home.pages(site)
    index = kernels.pages(site)[0]
    assert "](kernels/what-failed.md)" in front.content
    assert "](what-failed.md)" in index.content
    assert re.search(r"what failed", see(index).text)
