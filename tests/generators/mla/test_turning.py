"""One number says from how many query tokens decompressed attention is cheaper."""

from __future__ import annotations

import re

import pytest

from generators.mla import turning
from generators.pages import home, lessons
from mla_var3.workloads.mla import regimes


def test_the_number_is_the_analysis_own_and_says_what_moves_it():
    said = turning.text()
    wanted = regimes.figure("crossing", "nvidia-h200-sxm", "flash_attention", "flash_mla", "4096")
    assert f"**{wanted}** query tokens" in said
    ends = [int(end) for end in re.findall(r"s = (\d+) to (\d+) there", said)[0]]
    assert ends[0] <= int(wanted.removeprefix("s = ")) <= ends[1]
    assert "NVIDIA H20" in said
    assert "no mix that was measured" in said


@pytest.mark.slow
def test_home_and_the_lesson_on_the_roofline_say_the_same(site):
    (first,) = (str(page.content) for page in home.pages(site))
    (lesson,) = (str(p.content) for p in lessons.pages(site) if p.path == "learn/roofline.md")
    assert turning.short(site.link(home.HOME)) in first
    assert turning.text() in lesson
    numbers = [re.search(r"from \*\*s = (\d+)\*\*", said) for said in (first, lesson)]
    assert len({found[1] for found in numbers if found}) == 1
    assert all(numbers)
