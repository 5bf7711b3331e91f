"""The fastest of each language beside the library: one run, same work, who reads pages."""

from __future__ import annotations

from dataclasses import replace

from generators.mla import by_language, peers
from generators.model.columns import PEERS as LIBRARY
from tests.generators.runs import on


def test_all_of_the_table_is_one_run_of_two_languages_and_the_library(site) -> None:
    rows = by_language.rows_of(site)
    assert rows
    assert len({run.record.run for row in rows for run in row.values()}) == 1
    for row in rows:
        assert {LIBRARY, "cute-dsl", "cutile-dsl"} <= set(row)
        timed = [r for r in (*site.runs, *site.earlier) if r.record.run == row[LIBRARY].record.run]
        for language, run in row.items():
            same = [
                other.total.median_us
                for other in timed
                if other.record.kernel.language == language
                and by_language.unpaged(other) == by_language.unpaged(run)
            ]
            assert run.total.median_us == min(same)


def test_the_page_of_libraries_has_it_and_says_who_reads_pages(site) -> None:
    content = peers.page(site, "knowledge/workloads/mla.md").content
    part = content.partition("## Each language beside FlashMLA")[2].partition("\n## ")[0]
    assert "FlashMLA read the cache in pages of 64" in part
    assert "cuTile DSL reads one contiguous cache" in part
    assert part.count("\n| b=") == len(by_language.rows_of(site))


def test_without_a_run_of_both_there_is_none(site) -> None:
    ours = [run for run in site.runs if run.record.kernel.language == "cutile-dsl"]
    assert by_language.section(replace(on(site, *ours), earlier=()), site.link(peers.PATH)) == ""
