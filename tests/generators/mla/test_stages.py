"""How many tiles of the latent cache fit beside the queries follows from the chips' limits."""

from __future__ import annotations

from generators.mla import stages


def test_stages_follow_from_bytes_and_limits(site):
    rows = stages.text(site, site.link("glossary/shared-memory.md")).splitlines()
    cells = [[part.strip() for part in row.strip("|").split("|")] for row in rows if row[:1] == "|"]
    assert cells[0][4].endswith("sm_90, sm_100 (232,448)")
    found = {(row[0], row[1]): row[2:] for row in cells[2:]}
    assert found["64", "64"] == ["73,728", "73,728", "2", "1", "0"]
    assert (232_448 - 73_728) // 73_728 == 2
    assert found["128", "32"][-1] == "queries alone do not fit"
