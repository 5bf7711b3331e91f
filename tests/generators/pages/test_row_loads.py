"""Ways to load rows, with what a compiler made of each."""

from __future__ import annotations

from generators.pages import row_loads


def test_a_row_per_way_with_its_compile(site):
    rows = row_loads.text(site, site.link("glossary/paged-cache.md")).splitlines()[2:]
    assert len(rows) == len(row_loads.WAYS)
    loads = {row.split(" | ")[0].strip("| "): int(row.split(" | ")[4]) for row in rows}
    assert loads["`ct.load_advanced_indexing`"] > loads["`ct.load`, page by a scalar index"]


def test_only_the_gather_takes_copies_per_thread(site):
    rows = row_loads.text(site, site.link("glossary/paged-cache.md")).splitlines()[2:]
    taken = [row.split(" | ")[0].strip("| ") for row in rows if row.split(" | ")[5] != "0"]
    assert taken == ["`ct.gather`"]
