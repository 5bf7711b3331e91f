"""Ways to begin at a row between tiles, with what a compiler made of each."""

from __future__ import annotations

from generators.pages import late_starts


def test_a_view_and_a_tile_before_take_few_tma_loads_and_numbers_many(site):
    rows = late_starts.text(site, site.link("glossary/tile-space.md")).splitlines()[2:]
    view, numbered, gathered, before = (
        [int(cell) for cell in row.strip("| ").split(" | ")[3:5]] for row in rows
    )
    assert view == before == [view[0], 0]
    assert numbered[0] > view[0] > gathered[0]
    assert gathered[1] > 0
