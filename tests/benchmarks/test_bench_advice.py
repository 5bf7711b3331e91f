"""Worth of the advice over the project's own history; ``pytest -m benchmark tests/benchmarks``."""

from __future__ import annotations

import pytest

from mla_var3.knowledge import load_all
from mla_var3.knowledge.backtest import GAINED, TOP, backtest

pytestmark = pytest.mark.benchmark


@pytest.fixture(scope="module")
def replayed():
    done = backtest(load_all())
    print("", *done.cases, done, sep="\n")
    return done


def test_the_page_that_a_step_applied_was_advised(replayed):
    assert len(replayed.described) >= 34
    assert all(case.step.gain >= GAINED for case in replayed.cases)
    assert replayed.within(TOP) >= 28
    assert replayed.within(1) >= 20


def test_no_flushed_run_is_told_to_flush(replayed):
    assert not any("a11-no-l2-flush" in pages for pages in replayed.advised)


def test_where_nothing_is_to_be_said_nothing_is_said(replayed):
    assert replayed.silent > 0
