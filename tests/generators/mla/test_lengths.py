"""One kernel's time and error over contexts, from records of one run."""

from __future__ import annotations

import re
from dataclasses import replace

from generators.mla import lengths


def test_times_are_of_one_run_and_rise_with_the_context(site):
    text = lengths.times(site, site.link("mla/which-decode-kernel.md"))
    rows = [row for row in text.partition("Twice")[0].splitlines() if row.startswith("| ")][2:]
    contexts = [int(row.split(" | ")[0].strip("| ").replace(",", "")) for row in rows]
    assert contexts == sorted(contexts)
    assert len(contexts) >= 4
    assert contexts[-1] >= 8 * contexts[0]
    assert all("](" in row.split(" | ")[1] for row in rows)
    assert "one run" in text


def test_a_kernel_without_a_fault_errs_no_more_at_the_longest_context(site):
    text = lengths.errors(site, site.link("messages/wrong-numbers.md"))
    found = [float(x) for x in re.findall(r"\[(\d\.\de-\d+)\]", text)]
    assert len(found) >= 4
    assert found[-1] <= found[0]


def test_how_long_a_run_takes_is_said_in_minutes(site):
    said = lengths.minutes(site, site.link("scope.md"))
    assert int(re.search(r"\[(\d+) minutes", said)[1]) in range(1, 600)
    assert int(re.search(r"at (\d+) problems", said)[1]) > 10


def test_without_a_run_it_says_so(site):
    bare = replace(site, runs=(), earlier=())
    link = bare.link("mla/which-decode-kernel.md")
    assert lengths.times(bare, link).startswith("No run timed")
    assert lengths.errors(bare, link).startswith("No record states")
    assert lengths.minutes(bare, link) == "not recorded here"


def test_the_same_run_has_other_numbers_of_heads_beside_it(site):
    text = lengths.times(site, site.link("mla/which-decode-kernel.md"))
    head = next(row for row in text.splitlines() if row.startswith("| Context |"))
    assert "h = 64" in head
    assert "h = 128" in head
