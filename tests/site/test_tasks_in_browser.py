"""What a new reader comes for is found from home, under three clicks and two screens away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from site_browser import OpenTab

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

#: A laptop's window.
HEIGHT = 900
CLICKS, SCREENS = 2, 2


@dataclass(frozen=True)
class Task:
    """A question, the way to its answer, and what the answer says.

    Attributes:
        asks: The question.
        clicks: What is clicked, one after another, as selectors.
        answer: Where the answer stands.
        says: Words of it.
        types: What is typed into fields before the answer, by name.
    """

    asks: str
    clicks: tuple[str, ...]
    answer: str
    says: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict)


TASKS = (
    Task(
        "which kernel for b=8, s=4, t=32k on an H200, and how sure",
        ("article a:has-text('the MLA advisor')",),
        ".advice",
        # Of nearly as many rows and keys: one of the problems drawn by chance.
        (
            "Confidence low",
            "b is 8, measured 14; h is 128, measured 112; t is 32768, measured 16794",
            "nox -s profile",
        ),
        {"b": "8", "s": "4", "t": "32768"},
    ),
    Task(
        "what to do about spills on sm_120",
        (".md-tabs__link:has-text('Diagnosis')", "article a[href$='register-spills/#sm_120']"),
        "#sm_120 ~ .md-typeset__scrollwrap tbody tr",
        ("Fewer rows per tile", "0 instructions"),
    ),
    Task(
        "the code that mends spills on sm_120",
        (".cards a[href$='register-spills/#sm_120']",),
        "#sm_120 ~ .highlight:has-text('rows_for')",
        ("16 * 512 // width",),
    ),
    Task(
        "when that fails",
        (".cards a[href$='register-spills/#sm_120']",),
        "#sm_120 ~ p:has-text('When it fails') + ul",
        ("Fewer rows are not enough by themselves",),
    ),
    Task(
        "is v4 better than v3, and why",
        ("article .cards a:text-is('kernels')", "article a[href*='cutile-dsl/mla_var6_plus/v4']"),
        ".verdict",
        ("negative result", "slower", "than v3", "streams"),
    ),
    Task(
        "is the fastest kernel here competitive with FlashMLA",
        ("article a:has-text('Against FlashMLA and other libraries')",),
        "article p:has-text('one run timed both FlashMLA')",
        ("faster at", "as fast at", "slower at"),
    ),
    Task(
        "how to start learning the CuTe DSL",
        (".md-tabs__link:has-text('Learn')", "article a:text-is('path A')"),
        "article p:has-text('examples -- fetch')",
        ("nox -s examples -- fetch",),
    ),
    Task(
        "how to run my own cuTile kernel without a GPU",
        ("article a:has-text('run any cuTile kernel')",),
        "article > p:has-text('nox -s run')",
        ("nox -s run -- your_script.py",),
    ),
    Task(
        "how to add a version",
        ("article .cards a:has-text('add a version')",),
        "article pre:has-text('clone')",
        ("nox -s clone", "nox -s check", "nox -s compare"),
    ),
)


#: The theme notes a moment later where a page was left. Were a link clicked before, it would take
#: the note for that of the link's target and stay where it is: no reader is as quick.
NOTED = "() => Math.abs(history.state?.y - scrollY) < 1"


def scrolled(page: Any, selector: str) -> float:
    """Scroll until an element is in sight; gives by how much."""
    before = page.evaluate("scrollY")
    box = page.locator(selector).first.bounding_box()
    assert box is not None, f"{selector} is not on {page.url}"
    # What stands below the window comes to its lower edge, under the header from above.
    move = max(0.0, box["y"] + min(box["height"], HEIGHT / 2) - HEIGHT)
    page.evaluate("top => scrollTo({top, behavior: 'instant'})", before + move)
    if move > 0:
        page.wait_for_function(NOTED)
    return move


#: A link into a page brings its target into the window by itself, a moment after the click.
ARRIVED = """() => {
  if (!location.hash) return true
  const target = document.getElementById(location.hash.slice(1))
  if (!target) return false
  const { top } = target.getBoundingClientRect()
  return top >= 0 && top < innerHeight
}"""


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.asks)
def test_a_new_reader_finds_the_answer(open_tab: OpenTab, task: Task):
    tab = open_tab()
    page, total = tab.page, 0.0
    page.set_viewport_size({"width": 1440, "height": HEIGHT})
    tab.open("")
    assert len(task.clicks) <= CLICKS
    for selector in task.clicks:
        page.locator(selector).first.wait_for()
        total += scrolled(page, selector)
        page.locator(selector).first.click()
        page.wait_for_load_state("networkidle")
        page.wait_for_function(ARRIVED)
    for name, value in task.types.items():
        page.fill(f".calculator input[name={name}]", value)
    page.locator(task.answer).first.wait_for()
    total += scrolled(page, task.answer)
    said = " ".join(page.locator(task.answer).first.inner_text().split())
    for words in task.says:
        assert words in said, said
    assert total <= SCREENS * HEIGHT, f"{total / HEIGHT:.1f} screens"
    tab.check()
