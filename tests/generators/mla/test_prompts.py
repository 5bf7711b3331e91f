"""Rates of prefill as shares of a peak, and sparse prefill beside a library, from records."""

from __future__ import annotations

import re
from dataclasses import replace

from generators.mla import prompts


def test_a_rate_is_a_share_of_the_published_peak(site):
    text = prompts.rates(site, site.link("glossary/prefill.md"))
    rows = re.findall(r"\| ([\d,.]+) TFLOP/s \| (\d+)% \|", text)
    peak = float(re.search(r"sparsity: ([\d,.]+) TFLOP/s", text)[1])
    assert len(rows) > 3
    for rate, share in rows:
        assert abs(float(rate.replace(",", "")) / peak - int(share) / 100) < 0.006
    assert [float(rate) for rate, _ in rows] == sorted((float(r) for r, _ in rows), reverse=True)


def test_sparse_prefill_stands_beside_the_library_of_the_same_run(site):
    text = prompts.sparse(site, site.link("glossary/sparse-attention.md"))
    rows = [line for line in text.splitlines() if line.startswith("| ") and "records/" in line]
    assert len(rows) >= 10
    assert all(line.count("records/") == 2 for line in rows)


def test_without_records_it_says_so(site):
    bare = replace(site, runs=(), earlier=())
    link = bare.link("glossary/prefill.md")
    assert prompts.rates(bare, link) == "No kernel was timed at prefill here."
    assert "not timed" in prompts.sparse(bare, link)
