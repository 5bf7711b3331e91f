"""Which kernel to take for a case: by times of one run, and in words that follow from them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from generators.mla import choosing
from mla_var3.evidence.compare import NOISE


@pytest.fixture(scope="module")
def rows(site) -> dict[str, list[str]]:
    text = choosing.text(site, site.link("b200-and-rtx-5090.md"))
    cells = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    return {row[0]: row for row in cells}


def test_every_case_has_a_run_and_an_answer(rows):
    assert len(rows) == len(choosing.CASES)
    for row in rows.values():
        assert re.match(r"ours, \S+ faster$|either$|\*\*keep FlashMLA\*\*, \S+ faster$", row[-1])


def test_the_answer_follows_from_both_times_of_one_run(site):
    for case in choosing.CASES:
        pairs = [pair for runs in choosing._groups(site, case)
                 if (pair := choosing._pair(case, runs))]  # fmt: skip
        for mine, theirs in pairs:
            assert mine.record.run == theirs.record.run
            assert mine.record.problem.get("topk") == theirs.record.problem.get("topk") == case.topk


def test_where_the_library_is_ahead_it_is_kept(site, rows):
    case = choosing.Case(128, 64, 65536)
    mine, theirs = next(pair for runs in choosing._groups(site, case)
                        if (pair := choosing._pair(case, runs)))  # fmt: skip
    assert mine.total.median_us > theirs.total.median_us * (1 + NOISE)
    assert rows["b=128 h=64 t=65,536"][-1].startswith("**keep FlashMLA**")


def test_triton_stands_beside_the_library(site):
    told = choosing.triton(site, site.link("b200-and-rtx-5090.md"))
    assert told.count("where FlashMLA takes") == len(choosing.NAMED)


def test_without_runs_there_is_no_table(site):
    bare = replace(site, runs=(), earlier=())
    assert choosing.text(bare, bare.link("x.md")) == choosing.triton(bare, bare.link("x.md")) == ""
