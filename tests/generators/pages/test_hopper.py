"""Hopper from nothing: each script is right, each mistake is reported in its page's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generators.draw import hopper as drawn
from generators.pages import hopper
from mla_var3.app import run
from mla_var3.errors import KnowledgeError
from mla_var3.paths import repo_root

ROOT = repo_root()
COURSE = hopper.load(ROOT)
LESSONS = {lesson.key: lesson for lesson in COURSE.pages}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("key", LESSONS)
def test_a_script_is_right_and_nothing_is_reported(key: str, capsys) -> None:
    assert run.main(["--counts", str(ROOT / hopper.script(LESSONS[key]))]) == 0
    said = capsys.readouterr().out
    assert "right: True" in said
    assert "0 findings" in said
    assert "bank conflicts" not in said or key != "swizzle"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("key", LESSONS)
def test_a_mistake_is_reported_as_its_page_says(key: str, tmp_path: Path, capsys) -> None:
    lesson = LESSONS[key]
    text = (ROOT / hopper.script(lesson)).read_text()
    (tmp_path / f"{key}.py").write_text(hopper.wrong(lesson, text))
    code = run.main(["--counts", str(tmp_path / f"{key}.py")])
    assert lesson.says in capsys.readouterr().out
    assert code == (key != "swizzle")


def test_an_overwritten_operand_is_reported_as_the_page_says(tmp_path: Path, capsys) -> None:
    lesson = LESSONS["wgmma"]
    line, said = re.findall(r"`((?:s_a|race).+?)`", lesson.remedy)
    text = (ROOT / hopper.script(lesson)).read_text()
    (tmp_path / "early.py").write_text(text.replace(lesson.before, f"    {line}\n{lesson.before}"))
    assert run.main([str(tmp_path / "early.py")]) == 1
    assert said in capsys.readouterr().out


def test_the_lines_that_matter_are_marked(site) -> None:
    page = next(str(p.content) for p in hopper.pages(site) if p.path.endswith("hopper/tma.md"))
    shown = (ROOT / hopper.script(LESSONS["tma"])).read_text().splitlines()
    numbers = re.search(r'hl_lines="([\d ]+)"', page)[1].split()
    for number, wanted in zip(numbers, LESSONS["tma"].marked, strict=True):
        assert wanted in shown[int(number) - 1]
    lost = LESSONS["tma"].model_copy(update={"marked": ("nowhere", "mbarrier")})
    with pytest.raises(KnowledgeError, match=r"tma\.py must hold in one line: nowhere"):
        hopper._marks(lost, "\n".join(shown))


@pytest.mark.parametrize("key", LESSONS)
def test_a_script_has_at_most_sixty_lines(key: str) -> None:
    assert len((ROOT / hopper.script(LESSONS[key])).read_text().splitlines()) <= 60


def test_six_pages_each_with_picture_script_mistake_and_names(site):
    made = {page.path: page.content for page in hopper.pages(site)}
    assert len(made) == 7
    for key, lesson in LESSONS.items():
        content = made[f"learn/hopper/{key}.md"]
        for part in ("<svg", lesson.says, "## A mistake to make", "-", f"{key}.py"):
            assert part in content
        assert "../../api/cute/" in content
        assert "../../glossary/" in content
        words = len(lesson.text.split())
        assert 90 < words < 260


def test_a_mistake_that_the_script_does_not_have_is_a_fault():
    lesson = LESSONS["tma"].model_copy(update={"before": "nowhere\n"})
    with pytest.raises(KnowledgeError, match=r"tma\.py must hold once: nowhere"):
        hopper.wrong(lesson, "text\n")


@pytest.mark.parametrize("name", drawn.FIGURES)
def test_a_picture_has_words_for_who_cannot_see_it(name: str) -> None:
    picture = drawn.FIGURES[name]()
    assert "aria-label" in picture
    assert "<figcaption>" in picture


def test_a_ring_of_enough_stages_waits_for_the_first_load_alone():
    for stages, idle in ((1, 12.0), (3, 2.0)):
        _, done = drawn.ring_schedule(6, stages, 2.0, 1.5)
        assert done[-1][1] - 6 * 1.5 == idle


def test_each_thread_holds_its_part_of_the_accumulator():
    held: dict[tuple[int, int], int] = {}
    for row in range(64):
        for column in range(8):
            thread = drawn.accumulator_thread(row, column)
            held[thread] = held.get(thread, 0) + 1
    assert set(held.values()) == {4}
    assert len(held) == 128
