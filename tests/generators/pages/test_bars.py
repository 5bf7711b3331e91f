"""Bars of a version page: times of one run at one problem, the peer named wherever it was."""

from __future__ import annotations

import re
from dataclasses import replace

from generators.model import compare
from generators.pages import bars
from generators.write.text import at_line, fence
from mla_var3.runtime import registry
from tests.generators.runs import on, timed

NEW, OLD = registry.find("flash_mla", "v2"), registry.find("flash_mla", "v1")


def shown(site, *runs) -> list[tuple[str, str]]:
    made = on(site, *runs)
    text = bars.section(made, NEW, OLD, compare.of(made, NEW, OLD))
    return re.findall(r'scope="row">([^<]+)</th>.*?<span>([^<]+)</span>', text)


def test_the_version_before_and_flashmla_of_the_same_run(site) -> None:
    mine, before = timed("v2", 10.0, slug="a"), timed("v1", 20.0, slug="a")
    peer = timed("v0", 15.0, design="deepseek_flash_mla", slug="a")
    found = shown(site, mine, before, peer)
    assert found[:3] == [
        ("flash_mla v2", "10.0 us"), ("flash_mla v1", "20.0 us"), ("FlashMLA", "15.0 us"),
    ]  # fmt: skip


def test_a_peer_that_was_measured_again_since_has_the_time_of_this_run(site) -> None:
    mine, before = timed("v2", 10.0, slug="a"), timed("v1", 20.0, slug="a")
    peer = timed("v0", 15.0, design="deepseek_flash_mla", slug="a")
    again = timed("v0", 12.0, run="bbbb", design="deepseek_flash_mla", slug="a")
    made = replace(on(site, mine, before, again), earlier=(peer,))
    assert ">15.0 us<" in bars.section(made, NEW, OLD, compare.of(made, NEW, OLD))


def test_another_run_gives_no_bar(site) -> None:
    mine, far = timed("v2", 10.0, slug="a"), timed("v1", 20.0, run="bbbb", slug="a")
    assert "flash_mla v1" not in dict(shown(site, mine, far))


def test_nothing_timed_gives_nothing(site) -> None:
    assert shown(site) == []


def test_a_line_of_a_source_has_an_address() -> None:
    assert at_line("kernels/a/flash_mla_v3.py", 38) == (
        "kernels/a/flash_mla_v3.py#__span-flash_mla_v3-38"
    )
    assert fence("x", "python", "flash_mla_v3").startswith("``` { .python #flash_mla_v3 }")
