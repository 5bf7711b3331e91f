"""The table of small pages on the page of a step is what its records say."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from mla_var3 import evidence
from mla_var3.paths import repo_root

ROOT = repo_root()
FILE = next(
    (ROOT / "results/nvidia-h200-sxm/cute_python/mla/flash_mla").glob("*-a8711fd7a666.json")
)
TEXT = (ROOT / "docs/serving/step.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("## Pages of few tokens\n")[2].partition("\n## ")[0]
ROWS = [
    [one.strip() for one in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if line.startswith("|") and not line.startswith("|--")
]
HEAD, *TIMES = ROWS


def said(ratio):
    """Three digits."""
    return f"{ratio:.{2 - (ratio >= 10)}f}"


@pytest.fixture(scope="module")
def measured():
    """Flushed time and time back to back, by sizes and page."""
    found = {}
    for record in evidence.read(FILE).records:
        problem, outcome = record.problem, record.outcome
        sizes = tuple(problem[name] for name in ("b", "h", "t"))
        assert problem["lengths"] is None
        assert outcome.correctness.status == "passed"
        found[*sizes, problem["page"]] = outcome.total.median_us, outcome.energy.launch_us
    return found


def test_the_table_has_every_problem_and_page_that_was_timed(measured):
    columns = [tuple(int(n) for n in re.findall(r"=(\d+)", name)) for name in HEAD[1:]]
    pages = [int(row[0]) for row in TIMES]
    assert {(*c, p) for c in columns for p in (*pages, 64)} == measured.keys()
    for column, sizes in enumerate(columns, 1):
        for row in TIMES:
            pair = zip(measured[*sizes, int(row[0])], measured[*sizes, 64], strict=True)
            assert row[column] == ", ".join(said(small / large) for small, large in pair)


def test_the_smaller_the_page_the_longer_it_takes(measured):
    for sizes in {key[:3] for key in measured}:
        times = [measured[*sizes, page] for page in (64, 16, 4, 1)]
        for more, fewer in pairwise(times):
            assert all(a < b for a, b in zip(more, fewer, strict=True))
