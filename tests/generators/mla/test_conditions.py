"""What is said of how a library was run comes from its records."""

from __future__ import annotations

import re

from generators.mla import conditions, peers
from mla_var3.kernel.library.mla.deepseek_flash_mla.deepseek_flash_mla.deepseek_flash_mla import (
    NEEDS,
)
from tests.generators.runs import timed


def _run(version: str, run: str, **toolchain: str):
    return timed(version, 10.0, run, design="deepseek_flash_mla",
                 toolchain={"torch": "2.11.0", **toolchain})  # fmt: skip


def test_a_commit_is_told_apart_from_a_version_without_one_and_from_none(site):
    theirs = [
        _run("v0", "a" * 12, **{"flash-mla": "1.0.0+9241ae3"}),
        _run("v0", "b" * 12, flash_mla="1.0.0"),
        _run("v1", "c" * 12, flash_mla="1.0.0"),
        _run("v0", "d" * 12),
    ]
    said = conditions.section(site, [(run, run) for run in theirs], "FlashMLA")
    assert "version `1.0.0`, commit not recorded, in 2 rows" in said
    assert "`1.0.0+9241ae3`, whose last part is the commit, in 1 row " in said
    assert "no version recorded in 1 row " in said
    assert conditions.version_of(theirs[-1], NEEDS) is None


def test_the_page_says_how_to_repeat_it(site):
    said = peers.page(site, "x.md").content
    assert said.index("## How FlashMLA was run") < said.index("| Problem |")
    assert re.search(r"FlashMLA@[0-9a-f]{40}'`, then `nox -s bench -- --peers --set=serving", said)
    assert re.search(r"SM clock right after its run: [\d,]+ to [\d,]+ MHz", said)


def test_nothing_is_said_where_nothing_ran(site):
    assert conditions.section(site, [], "FlashMLA") == ""
