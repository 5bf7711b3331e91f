"""Tables of docs that follow the checkout: toolchains, what is new, what each design names next."""

from __future__ import annotations

import re

from generators.pages import newest, open_next, toolchains


def test_versions_of_each_tool_count_every_record(site):
    text = toolchains.text(site, site.link("versions.md"))
    counted = sum(len(one.records) for one in toolchains.used(site, "torch"))
    stated = [run for run in (*site.runs, *site.earlier) if "torch" in run.record.toolchain]
    assert counted == len(stated) > 1000
    for tool in toolchains.TOOLS:
        assert f"`{tool}`" in text


def test_the_newest_comes_first(site):
    days = re.findall(r"^\| (\d{4}-\d\d-\d\d) \|", newest.text(site, site.link("a.md")), re.M)
    assert len(days) == newest.SHOWN
    assert days == sorted(days, reverse=True)


def test_the_next_step_is_that_of_the_newest_version(site):
    text = open_next.text(site, site.link("open-ideas.md"))
    newest_of = site.designs()["flash_mla@cute-dsl"][-1].version
    assert f") {newest_of} |" in text
    assert "cutlass" not in text.split("|")[4]
