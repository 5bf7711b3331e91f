"""What kernels of one's own took and brought is worked out from sources and records."""

from __future__ import annotations

import re

from generators.mla import effort, memory, merging


def link(target: str) -> str:
    return target


def test_lines_count_the_files_that_a_version_imports(site):
    version = next(v for v in site.versions if v.design_key == "flash_mla@cute-dsl")
    own, kit = effort.lines(version)
    counted = sum(file.read_text().count("\n") for file in version.source_files())
    assert own + kit == counted
    assert own
    assert kit


def test_libraries_are_no_effort_of_ours(site):
    text = effort.table_of(site, link)
    assert re.search(r"CuTe DSL \| \d+ \|", text)
    assert "torch" not in text


def test_the_factor_over_torch_is_of_one_run_and_says_what_differs(site):
    text = effort.torch(site, link)
    factor = float(re.match(r"\*\*([\d.]+)x\*\*", text)[1])
    theirs, ours = (float(t.replace(",", "")) for t in re.findall(r"\[([\d,.]+) us\]", text))
    assert abs(theirs / ours / factor - 1) < 0.05
    assert "unlike work" in text


def test_the_merge_costs_what_both_passes_take_beyond_the_main_one(site):
    text = merging.text(site, link)
    rows = re.findall(
        r"\| ([\d.,]+) us \| [\d.,]+ us \| \[([\d.,]+) us\][^|]*\| [^|]*, (\d+)%", text
    )
    assert rows
    for main, both, share in rows:
        whole = float(both.replace(",", ""))
        assert abs(1 - float(main.replace(",", "")) / whole - int(share) / 100) < 0.02
    shares = [int(share) for *_, share in rows]
    assert shares == sorted(shares)


def test_home_says_what_a_latent_row_saves_by_the_models_sizes(site):
    assert "keeps 576 numbers" in memory.saves(site, link)
    assert "32,832: a 57th" in memory.saves(site, link)
