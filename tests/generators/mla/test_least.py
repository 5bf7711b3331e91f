"""What no decode kernel can beat: as the cost model and the cards' figures say it."""

from __future__ import annotations

import pytest

from generators.mla import least, ultra
from mla_var3 import devices


def test_the_worked_example_is_bytes_over_bandwidth(site):
    told = least.text(site, site.link("glossary/bound.md"))
    found = least.least(devices.load(least.EXAMPLE), 16)
    cache = 64 * 8192 * 576 * 2
    assert found.found.memory_us == pytest.approx(cache / 4.8e12 * 1e6, rel=0.01)
    assert not found.by_arithmetic
    assert f"{cache / 1e6:,.0f} MB" in told
    assert f"**{found.found.memory_us:.0f} us, which no kernel can beat**" in told


def test_more_heads_turn_it_to_arithmetic_on_an_h200_alone():
    sides = {
        card: [least.least(devices.load(card), heads).by_arithmetic for heads in least.HEADS]
        for card in least.CARDS
    }
    assert sides[least.EXAMPLE] == [False, False, False, True]
    assert sides["nvidia-b200"] == [False] * 4


def test_what_differs_between_two_cards_comes_first(site):
    told = ultra.text(site, site.link("learn/hopper-to-blackwell.md"))
    rows = [line.strip("|").split("|") for line in told.splitlines() if line.startswith("|")]
    same = [first.strip() == second.strip() for _, first, second in rows[2:]]
    assert same == sorted(same)
    assert {True, False} <= set(same)
