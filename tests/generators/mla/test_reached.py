"""Rates of the best decode kernels beside datasheet and copy, from records."""

from __future__ import annotations

import re
from dataclasses import replace

from generators.mla import reached
from tests.generators.checking import ROOT

PAGE = "glossary/bound-fraction.md"


def test_a_rate_is_a_share_of_datasheet_and_copy(site):
    text = reached.text(site, site.link(PAGE))
    sheet, copy = (
        float(re.search(rf"([\d,]+) GB/s {words}", text)[1].replace(",", ""))
        for words in ("on the", "by a copy")
    )
    rows = re.findall(r"\| ([\d,]+) GB/s \| (\d+)% \| (\d+)% \|", text)
    rates = [float(rate.replace(",", "")) for rate, _, _ in rows]
    assert len(rates) >= 4
    assert rates == sorted(rates, reverse=True)
    for rate, (_, of_sheet, of_copy) in zip(rates, rows, strict=True):
        assert abs(rate / sheet - int(of_sheet) / 100) < 0.006
        assert abs(rate / copy - int(of_copy) / 100) < 0.006


def test_the_rule_of_the_page_is_where_latent_kernels_stand(site):
    text = reached.text(site, site.link(PAGE))
    shares = {
        int(heads): int(share)
        for heads, share in re.findall(r"h=(\d+) s=1 [^|]*k=512 .*\| (\d+)% \|\n", text)
    }
    assert all(85 <= shares[heads] <= 95 for heads in (16, 32, 64))
    assert shares[128] < 85
    assert "between 85 % and 95 % of it" in (ROOT / "docs" / PAGE).read_text("utf-8")


def test_without_records_it_says_so(site):
    bare = replace(site, runs=(), earlier=())
    assert reached.text(bare, bare.link(PAGE)) == "No kernel was timed at decode here."
