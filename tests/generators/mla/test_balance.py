"""On which side of each card's balance decode lies, by which rates."""

from __future__ import annotations

import re

import pytest

from generators.mla import balance, cards
from generators.mla.regimes import map_page
from mla_var3 import devices
from mla_var3.workloads.mla import regimes
from mla_var3.workloads.mla.regimes import Shape


@pytest.fixture(scope="module")
def table(site) -> dict[str, list[str]]:
    text = balance.text(site, site.link("glossary/arithmetic-intensity.md"))
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| [")]
    return {re.findall(r"devices/([a-z0-9-]+)\.md", row[0])[0]: row[1:] for row in rows}


def test_intensity_is_what_the_cost_model_counts_of_a_long_context():
    shape = Shape(b=1)
    work = regimes.cost("flash_mla", shape, 1, 10_000_000)
    wanted = regimes.latent_intensity(shape, shape.h)
    assert work.flops / work.bytes == pytest.approx(wanted, rel=1e-3)


def test_every_card_has_its_balance_and_a_side_per_number_of_heads(site, table):
    shape = Shape()
    assert len(table) >= 8
    for key, (_, ridge, *sides, rows) in table.items():
        found = cards.rates(devices.load(key))
        assert ridge == f"{found.ridge:.0f} FLOP/byte"
        border = int(rows.removesuffix(" rows"))
        assert border == round(regimes.border_rows(shape, found))
        for heads, side in zip((128, 64, 16), sides, strict=True):
            takes = regimes.latent_intensity(shape, heads) >= found.ridge
            assert side.startswith("arithmetic" if takes else "memory"), (key, heads)


def test_faster_memory_stands_first_so_sxm_before_pcie(table):
    keys = list(table)
    assert keys.index("nvidia-h100-sxm") < keys.index("nvidia-h100-pcie")


def test_both_borders_of_a_measured_card_are_said(site):
    text = balance.text(site, site.link("glossary/arithmetic-intensity.md"))
    for name in ("border-rows", "published-border-rows"):
        assert f"{regimes.figure(name, 'nvidia-h200-sxm')} rows" in text or (
            f"{regimes.figure(name, 'nvidia-h200-sxm')} by those attained" in text
        )


def test_a_card_s_own_page_says_its_side(site):
    text = str(map_page(site, "nvidia-h100-sxm").content)
    assert "memory takes longer, arithmetic from 2 query tokens on" in text
    assert "arithmetic-intensity.md)" in text
    assert "from one query token on" in str(map_page(site, "nvidia-h200-sxm").content)


def test_cards_of_hopper_s_code_stand_beside_the_first(site):
    cells = balance.hopper(site, site.link("how-times-are-taken.md")).split("; ")
    assert len(cells) == len(balance.HOPPER)
    assert cells[0].endswith("989.5 TFLOP/s, 4.8 TB/s, memory binds up to 109 rows")
    fast, slow = (cards.rates(devices.load(key)) for key in ("nvidia-h200-sxm", "nvidia-h100-pcie"))
    assert f"({fast.gbps / slow.gbps:.2g} times the time with 16 heads" in cells[-1]


def test_shares_that_count_as_near_are_those_attained(site):
    text = balance.border(site, site.link("profiling.md"))
    found, attained = (cards.rates(devices.load("nvidia-h200-sxm")),
                       regimes.ceilings_of("nvidia-h200-sxm"))  # fmt: skip
    assert f"{attained.gbps / found.gbps:.0%} of the [bandwidth]" in text
    assert "**H100 SXM:**" in text


def test_a_share_of_the_heads_and_all_stand_beside_where_a_card_turns(site):
    said = balance.few_and_all(site, site.link("glossary/head-grouping.md"))
    assert said.startswith("16 heads have 30 FLOP per byte (memory limits) and 128 heads have 242")
    assert "an H200 SXM turns at [206](" in said
