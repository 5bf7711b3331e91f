"""Records as pages: what ran, how, and whether it was right, at an anchor of its own."""

from __future__ import annotations

import datetime
import re

import pytest

from generators.model.run import Run
from generators.model.site import Site
from generators.pages import record_facts, records
from mla_var3 import arguments, workloads
from mla_var3.app import benching
from mla_var3.evidence import Failed
from tests.factories import passed
from tests.generators.checking import dead_links, see
from tests.generators.runs import GPU, on, rows, timed

FLASH = f"records/{GPU}/cutile/mla/flash_mla"


def content(site: Site, path: str) -> str:
    return next(str(page.content) for page in records.pages(site) if page.path == path)


def test_every_record_has_an_anchor_of_its_own_and_the_way_back_to_its_file(site):
    shown = [records.address(run.name) for run in site.runs]
    assert len(set(shown)) == len(shown)
    for run, place in zip(site.runs, shown, strict=True):
        page, _, anchor = place.partition("#")
        assert records.raw_of(page, anchor) == records.raw(run.name)


def test_a_record_says_its_number_first_and_how_it_came_to_be(site):
    fast, slow = timed("v1", 10.0), timed("v0", 30.0)
    text = content(on(site, fast, slow), f"{FLASH}/v0.md")
    section = text[text.index("## b=8") :]
    assert section.split("\n\n")[1].startswith("**30 us**")
    assert "3x slower than [flash&#95;mla v1]" in section
    for fact in ("What", "Where", "When", "How", "Correctness", "Toolchain"):
        assert f"- **{fact}**: " in section
    assert "/event.json)" in section, "the record itself, with its run"
    beside = rows(section, "In the same run")
    assert [row[1].strip("*")[:8] for row in beside] == ["[flash&#", "this one"]


@pytest.mark.slow
def test_a_page_says_how_to_reproduce_its_records_and_leads_to_the_rules(site):
    page = content(site, f"records/{GPU}/cute_python/mla/flash_mla/v19.md")
    shown = page.partition("<details")[0]
    assert "**Run it again**, here at b=" in shown, "before anything that is folded"
    command = re.search(r"`nox -s profile -- flash_mla@cute-dsl v19 ([^`]+)`", shown)
    assert command
    assert "--prof_type=event" in command[1]
    assert "--b=" in command[1]
    assert "None" not in command[1]
    assert "a time and no comparison" in shown
    assert "/contributing/index.md#add-a-measurement)" in shown


def test_the_command_beside_other_versions_asks_for_what_bench_can(site):
    def said(version: str) -> str:
        runs = [run for run in site.runs if run.record.kernel.version == version and run.is_timed]
        mine = [run for run in runs if run.record.kernel.design == "flash_mla"]
        return " ".join({record_facts.beside(site, run) for run in mine if wanted(run)})

    def wanted(run: Run) -> bool:
        problem = run.record.problem
        return run.record.kernel.language == "cute-dsl" and problem.get("page") is paged

    paged = None
    found = said("v12")
    assert "`nox -s bench -- " in found
    assert "--designs=flash_mla@cute-dsl`" in found
    for command in found.strip("`").split("` `"):  # Each is one that the command line takes.
        argv = command.split(" -- ")[1].split()
        arguments.parse(benching.flags_of(workloads.find("mla")), argv, "prog")
    paged = 64
    assert any(run.record.kernel.version == "v19" and wanted(run) for run in site.runs)
    assert said("v19") == ""


def test_times_of_another_run_are_not_compared(site):
    text = content(on(site, timed("v1", 10.0), timed("v0", 30.0, run="bbbb")), f"{FLASH}/v0.md")
    # Alone in its run it is neither fast nor slow.
    assert "**30 us**" in text
    assert "of its run" not in text
    assert "slower" not in text


def test_a_page_shows_the_newest_run_and_folds_the_others(site):
    newer, older = timed("v1", 10.0, time=day(22)), timed("v1", 20.0, run="bbbb", time=day(21))
    text = content(on(site, newer, older), f"{FLASH}/v1.md")
    shown, _, folded = text.partition(
        '<details class="facts" markdown="1">\n<summary><strong>Run of'
    )
    assert "**10 us**" in shown
    assert "**20 us**" not in shown
    assert "**20 us**" in folded
    assert "2026-11-21</strong> <span>b=8 h=128 s=4 t=4096 bf16, 20 us<" in folded


def day(number: int) -> datetime.datetime:
    return datetime.datetime(2026, 11, number, tzinfo=datetime.UTC)


def test_of_many_records_a_table_leads_to_each(site):
    problems = [{"b": b, "t": 128, "dtype": "bf16"} for b in (1, 2, 4, 8)]
    slow = [timed("v0", 30.0 * p["b"], run="one", problem=p, slug=f"b{p['b']}") for p in problems]
    fast = [timed("v1", 10.0, run="one", problem=p, slug=f"b{p['b']}") for p in problems]
    text = content(on(site, *slow, *fast), f"{FLASH}/v0.md")
    table, _, whole = text.partition("Each of these")
    assert [row[1] for row in rows(table, "")] == ["30 us", "60 us", "120 us", "240 us"]
    assert "24x slower" in table
    for p in problems:
        assert f"(#b{p['b']}-event)" in table
        assert f"{{ #b{p['b']}-event }}" in whole
    few = content(on(site, *slow[:3]), f"{FLASH}/v0.md")
    assert "Each of these" not in few


def test_what_failed_says_why_and_runs_nothing(site):
    bad = timed("v0", 1.0, outcome=Failed(error="no <script>memory</script>"), slug="f")
    page = next(p for p in records.pages(on(site, bad)) if p.path == f"{FLASH}/v0.md")
    assert "**Failed**: no &lt;script&gt;memory" in str(page.content)
    assert see(page).scripts == []


def test_a_record_that_was_only_checked_is_no_time(site):
    made = timed("v1", 1.0, outcome=passed(), mode="disabled", slug="c", stale=True)
    text = content(on(site, made), f"{FLASH}/v1.md")
    assert "**Stale**" in text
    assert " us**" not in text


def test_links_of_a_page_of_records_resolve(site, pages):
    found = [page for page in records.pages(site) if page.path.endswith("flash_mla_fp8/v0.md")]
    assert found
    assert list(dead_links(found, pages)) == []


def test_a_record_of_a_named_run_is_found_where_its_page_is(site):
    run = next(run for run in site.runs if run.record.run is not None)
    found = site.addresses[f"{run.name}@{run.record.run}"]
    assert found == site.addresses[run.name]


@pytest.mark.slow
def test_a_record_of_a_run_that_was_measured_again_is_found_with_its_own_figures(site):
    run = next(run for run in site.earlier if run.record.run and run.outcome.energy)
    found = site.addresses[f"{run.name}@{run.record.run}"]
    page, _, anchor = found.partition("#")
    text = str(next(p for p in records.pages(site) if p.path == page).content)
    row = next(line for line in text.splitlines() if f"](#{anchor})" in line)
    assert f"{run.outcome.energy.watts:.0f} W" in row
    # Whoever cites that run finds its own device, driver and tools, not those of a later one.
    whole = text.partition(f"{{ #{anchor} }}")[2].partition("\n#### ")[0].partition("</details>")[0]
    assert f"run {run.record.run}" in whole
    assert f"driver {run.record.device.driver}" in whole
    assert "**Toolchain**" in whole
    assert text.count(f"{{ #{anchor} }}") == 1
    assert records.raw_of(page, anchor) == records.TABLE
