"""Conversations per card: what fits whole, beside weights, and not at all."""

from __future__ import annotations

from generators.mla import memory


def test_a_conversation_s_bytes_are_those_of_the_table_above(site):
    whole, packed = memory.long_sizes()
    text = memory.cache(site, site.link("glossary/kv-cache.md"))
    assert f"{whole:.1f} GB" in text
    assert f"{packed:.1f} GB" in text


def test_what_fits_beside_weights_is_whole_and_less_than_without():
    sizes = memory.long_sizes()
    assert memory._fitting(141, sizes) == f"{int(141 / sizes[0])} ({int(141 / sizes[1])})"
    assert memory._beside(80, 671, 8, sizes) == "weights do not fit"
    assert memory._beside(141, 671, 8, sizes).startswith(f"**{int((141 - 671 / 8) / sizes[0])} (")


def test_every_compared_card_has_a_row_and_the_formula_stands_below(site):
    text = memory.room(site, site.link("glossary/kv-cache.md"))
    assert sum(line.startswith("| [") for line in text.splitlines()) == 3
    assert "(memory - weights / cards) / bytes of one" in text
