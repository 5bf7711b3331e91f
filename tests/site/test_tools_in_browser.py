"""The calculator and the filter on the built site; tests/generators tries every input of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from site_browser import BASE, OpenTab, Tab

from generators.mla import figure
from mla_var3 import knowledge
from mla_var3.workloads.mla import regimes

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_the_calculator_after_instant_navigation(open_tab: OpenTab):
    tab = open_tab()
    tab.open("")
    tab.page.evaluate("window.stays = true")
    tab.page.click(".md-tabs__link:has-text('MLA')")
    tab.page.wait_for_url(f"{BASE}mla/")
    tab.page.wait_for_selector("[data-times] tbody tr")
    tab.page.select_option(".calculator select", "nvidia-b200")
    tab.page.fill(".calculator input[name=b]", "64")
    tab.page.fill(".calculator input[name=s]", "8")
    cell = regimes.cell(regimes.Shape(), 8, 4096, regimes.ceilings_of("nvidia-b200"))
    rows = tab.page.locator("[data-times] tbody tr")
    shown = {
        rows.nth(index).get_attribute("data-kernel"): float(
            rows.nth(index).get_attribute("data-us")
        )
        for index in range(rows.count())
    }
    assert shown == pytest.approx(cell.time_us, rel=1e-12)
    assert f"fastest over {regimes.READS[cell.winner]}" in tab.page.inner_text(".calculator-answer")
    assert tab.page.evaluate("window.stays")
    tab.check()


def test_the_filter_finds_and_leads_to_a_pattern(open_tab: OpenTab):
    from playwright.sync_api import expect

    tab = open_tab()
    rows, count = filtered(tab, "catalogue/")
    assert tab.page.url == f"{BASE}catalogue/?regime=prefill&basis=static"
    tab.page.reload()
    expect(rows).to_have_count(count)
    follow_first(tab, rows)


@pytest.mark.exhaustive  # A second build.
def test_the_filter_works_from_files(offline: Path, open_tab: OpenTab):
    tab = open_tab()
    rows, _ = filtered(tab, (offline / "catalogue/index.html").as_uri())
    follow_first(tab, rows)


def filtered(tab: Tab, address: str) -> tuple[Any, int]:
    """The rows of the filter on two of its choices, and how many there should be."""
    tab.open(address)
    metas = [document.pattern for document in knowledge.load_all().patterns]
    rows = tab.page.locator(".filter-table tbody tr:visible")
    assert rows.count() == len(metas)
    tab.page.get_by_label("Regime").select_option("prefill")
    tab.page.get_by_label("Basis").select_option("static")
    wanted = [meta for meta in metas if "prefill" in meta.regimes and meta.basis == "static"]
    assert rows.count() == len(wanted) > 0
    return rows, len(wanted)


def follow_first(tab: Tab, rows: Any) -> None:
    rows.first.locator("a").click()
    tab.page.wait_for_selector("h2:has-text('When to apply')")
    tab.check()


def test_a_metric_of_a_pattern_leads_to_its_row(open_tab: OpenTab):
    tab = open_tab()
    tab.open("catalogue/optimizations/o2-head-grouping/")
    metric = "a[href$='#l2_hit_percent']"
    tab.page.locator(f"details:has({metric}) > summary").first.click()
    tab.page.locator(metric).first.click()
    tab.page.wait_for_url(f"{BASE}catalogue/metrics/#l2_hit_percent")
    tab.page.wait_for_selector("#l2_hit_percent")
    tab.check()


def test_the_first_use_of_a_term_leads_to_its_page(open_tab: OpenTab):
    tab = open_tab()
    tab.open("mla/")
    tab.page.locator("article a.term").first.click()
    tab.page.wait_for_url(f"{BASE}glossary/*/")
    tab.check()


def test_a_path_remembers_what_is_done_and_folds_its_answers(open_tab: OpenTab):
    from playwright.sync_api import expect

    tab = open_tab()
    tab.open("learning/a-fundamentals/")
    count = tab.page.locator(".learning-path output")
    expect(count).to_have_text("0 of 5 steps done")
    tab.page.get_by_label("Step 2 done").check()
    expect(count).to_have_text("1 of 5 steps done")
    tab.page.reload()
    expect(tab.page.get_by_label("Step 2 done")).to_be_checked()
    expect(tab.page.get_by_label("Step 1 done")).not_to_be_checked()
    answer = tab.page.get_by_text("Warp 0 alone issues both")
    expect(answer).to_be_hidden()
    tab.page.get_by_text("Which threads issue the TMA loads").click()
    expect(answer).to_be_visible()
    tab.open("learning/")
    expect(tab.page.locator("[data-path=a-fundamentals]")).to_have_text("1 of 5 steps done")
    tab.check()


def test_sliders_move_the_figure_of_mla(open_tab: OpenTab):
    tab = open_tab()
    tab.open("learn/attention-and-mla/")
    drawn = tab.page.locator(".mla-figure")
    message = drawn.locator(".mla-figure__message")
    before = message.inner_text()
    curve = drawn.locator("[data-curve=latent]").get_attribute("d")
    assert f"At s = {figure.first_sizes()['s']} " in before
    drawn.locator("input[name=s]").press("Home")
    drawn.locator("input[name=t]").press("End")
    sizes = figure.first_sizes() | {"s": 1, "t": figure.SLIDERS["t"][2][-1]}
    assert message.inner_text() == figure.message(sizes)
    assert drawn.locator("[data-curve=latent]").get_attribute("d") != curve
    tab.check()
