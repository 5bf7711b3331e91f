"""report.html: figures from records in a file that loads nothing."""

from __future__ import annotations

import re

import pytest
from factories import costs_as, duration, passed, record, stage, static_facts

from mla_var3 import evidence
from mla_var3.evidence import Failed
from mla_var3.profiling.page import render


@pytest.fixture(autouse=True)
def cost(monkeypatch):
    """A cost model that is easily followed."""
    costs_as(monkeypatch)


def of(*stages, **changes) -> evidence.Record:
    return record(outcome=passed(stages=list(stages)), **changes)


def test_the_page_has_the_screen_the_figures_and_the_whole_report():
    found = of(stage(static=static_facts(registers=168, spill_loads=40)))
    page = render([found], ["Try this"])
    assert page.index("<h1>") < page.index("<svg") < page.index("The whole report")
    assert "168 of 255, 40 spill instructions" in page
    # What was only compiled does not stand under a roof.
    assert page.count("<svg") == 1
    assert "Try this" in page
    assert "What the compiler made of it" in page


def test_figures_follow_a_changed_record():
    before = render([of(stage(static=static_facts(registers=168)))])
    after = render([of(stage(static=static_facts(registers=84)))])
    wide, narrow = (float(re.findall(r'width="([\d.]+)" height="18" fill="v', page)[0])
                    for page in (before, after))  # fmt: skip
    assert wide == 2 * narrow
    one = {"target": "nvidia-h200-sxm", "mode": "event"}
    slow, fast = (render([of(stage(duration=duration(us)), **one)]) for us in (20.0, 10.0))
    assert "50 TFLOP/s measured" in slow
    assert "100 TFLOP/s measured" in fast


def test_nothing_is_loaded_and_nothing_runs():
    page = render([record(outcome=Failed(error="<script>alert(1)</script> | `x`"))])
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(src|href)=.?(https?:)?//", page)
    assert "<svg" not in page
