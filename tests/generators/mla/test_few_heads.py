"""A GPU's share of the heads beside all of them, from records."""

from __future__ import annotations

import re
from dataclasses import replace

from generators.mla import few_heads
from mla_var3.versions import number_of


def test_batches_from_small_to_large_stand_beside_the_library(site):
    text = few_heads.text(site, site.link("glossary/head-grouping.md"))
    rows = [[x.strip() for x in row.strip("| ").split(" | ")] for row in text.splitlines()[2:]]
    batches = [int(row[0]) for row in rows]
    assert batches == sorted(batches)
    assert batches[-1] >= 8 * batches[0]
    assert all(("](" in row[2]) == ("](" in row[3]) for row in rows)
    for of in (2, 5):
        assert sum(len(row) > of and "](" in row[of] for row in rows) >= 4


def test_without_a_run_it_says_so(site):
    bare = replace(site, runs=(), earlier=())
    assert few_heads.text(bare, bare.link("x.md")).startswith("No run timed")


def test_tensor_and_data_parallelism_are_compared_by_times(site):
    said = few_heads.parallel(site, site.link("glossary/head-grouping.md"))
    assert said.count(" us](") == 2
    assert "computed, not timed" in said
    bare = replace(site, runs=(), earlier=())
    assert few_heads.parallel(bare, bare.link("x.md")).startswith("No sizes")


def test_a_share_and_all_heads_at_one_size(site):
    said = few_heads.beside(site, site.link("serving/graphs.md"))
    assert said.startswith("One query token, 32 sequences of 4,096, H200: 16 heads [")
    assert said.count(" us](") == 2
    bare = replace(site, runs=(), earlier=())
    assert few_heads.beside(bare, bare.link("x.md")).startswith("No size")


def test_versions_stand_with_both_counts_of_heads_and_the_library_of_their_run(site):
    bare = replace(site, runs=(), earlier=())
    told = few_heads.versions(site, site.link("glossary/head-grouping.md"))
    rows = re.findall(r"(v\d+) \[[^]]+\]\([^)]+\) \(\[[^]]+\]", told)
    assert len(rows) >= 5
    assert rows == sorted(rows, key=number_of)
    assert few_heads.versions(bare, bare.link("x.md")).startswith("No version")
