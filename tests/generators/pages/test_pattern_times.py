"""A pattern's page begins with where it paid, problem by problem, by records of one run."""

from __future__ import annotations

from generators.pages import pattern_times
from generators.pages.catalogue import pattern_path


def _said(site, id_):
    meta = site.catalogue.page(id_).pattern
    return pattern_times.section(site, meta, site.link(pattern_path(meta)))


def test_a_pattern_says_where_it_paid_where_not_and_who_has_it(site):
    said = _said(site, "cute-tma-multicast")
    assert said.startswith("**When is it worth it?**")
    assert "s=16 (1.07x)" in said
    assert "**as fast** at s=1; **slower** nowhere" in said
    assert "v25](" in said.rpartition("Newest versions that have it:")[2]


def test_an_anti_pattern_says_what_mending_it_brought(site):
    said = _said(site, "a9-default-warps-large-accumulator")
    assert said.startswith("**What did mending it bring?**")
    assert "Newest versions" not in said


def test_a_pair_of_two_designs_names_both(site):
    said = _said(site, "a8-blind-dataflow-flip")
    assert "flash&#95;attention v2](" in said
    assert "**slower** at b=32 s=32 t=4096 (1.6x)" in said


def test_a_pattern_without_a_pair_of_times_says_nothing(site):
    assert _said(site, "cutile-operand-order") == ""
