"""How to repeat the time that most pages quote."""

from __future__ import annotations

import re
from dataclasses import replace

from generators.mla import repeating


def test_commit_commands_and_what_is_expected_stand_together(site):
    text = repeating.text(site, site.link("how-times-are-taken.md"))
    assert re.search(r"git checkout [0-9a-f]{12} ", text)
    assert re.search(r"FlashMLA@[0-9a-f]{40}", text)
    assert "nox -s bench -- --peers" in text
    expected = next(row for row in text.splitlines() if row.startswith("| expect |"))
    assert expected.count(" us](") == expected.count("TFLOP/s") == expected.count("GB/s") == 2
    long = repeating.outliers(site, site.link("how-times-are-taken.md"))
    assert re.search(r"shortest takes 0\.\d\d to \d\.\d\d of the median", long)
    errors = next(row for row in text.splitlines() if row.startswith("**Right:** largest error"))
    assert errors.count("against torch fp32") == 2


def test_the_readme_stands_beside_the_most_that_each_side_reached(site):
    text = repeating.text(site, site.link("how-times-are-taken.md"))
    rows = {row.strip("| ").split(" | ")[0]: row for row in text.splitlines()}
    assert "3000 GB/s, 90% of that card's" in rows["most GB/s of any problem"]
    assert "660 TFLOPS, 67% of that card's" in rows["most TFLOP/s of any problem"]
    assert rows["most GB/s of any problem"].count(" at b=") == 2


def test_without_a_run_it_says_so(site):
    bare = replace(site, runs=(), earlier=())
    assert repeating.text(bare, bare.link("x.md")).startswith("No run timed")
