from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import evidence
from mla_var3.evidence.compare import neighbors
from mla_var3.knowledge import history
from mla_var3.knowledge.backtest import backtest
from mla_var3.knowledge.history import Gain, expected

from .trees import PAGE, PROTOCOL, timed_record


def timed(version, us, *, run="r1", slug="b1", **changes):
    duration = {"median_us": us, "min_us": us, "max_us": us, "samples": 20}
    record = timed_record(
        version, slug=slug, stage={"duration": duration},
        outcome={"total": duration, "protocol": PROTOCOL}, **changes,
    )  # fmt: skip
    return record.model_copy(update={"run": run})


@pytest.fixture
def catalogue(tree):
    for record in (timed("v0", 400.0), timed("v1", 100.0)):
        evidence.write(record, tree.root / "results")
    return tree.catalogue()


def test_a_step_joins_neighbors_of_one_run():
    v0, v1, other = timed("v0", 400.0), timed("v1", 100.0), timed("v1", 100.0, run="r2")
    assert [s.gain for s in neighbors([v0, v1])] == [4.0]
    assert list(neighbors([v0, other])) == []
    assert list(neighbors([v0, timed("v1", 100.0, slug="b2")])) == []


def test_a_step_applied_what_the_next_version_uses_or_no_longer_violates(catalogue):
    (step,) = neighbors(history.timed(catalogue))
    assert [p.pattern.id for p in history.applied(step, catalogue)] == ["a1-spill", "o1-group"]


def test_gains_count_where_the_page_was_called_for(tree, catalogue):
    assert [g.factor for g in history.gains(catalogue)["o1-group"]] == [4.0]
    tree.replace(PAGE, "metric: spill_instructions\n    comparison: \">\"\n    value: 0",
                 "metric: spill_instructions\n    comparison: \">\"\n    value: 9")  # fmt: skip
    assert "o1-group" not in history.gains(tree.catalogue())


def test_backtest_forgets_what_the_step_taught(catalogue):
    done = backtest(catalogue)
    (case,) = done.cases
    assert case.applied == ("a1-spill", "o1-group")
    assert case.place == 1
    assert (done.within(1), len(done.described), len(done.advised)) == (1, 1, 2)
    assert "4.00x" in str(case)
    assert "top 3 1 times" in str(done)


def gain(factor, **problem):
    return Gain(factor, problem, ("cutile-dsl", "mla", "flash_mla", "v0"))


def test_nothing_is_expected_before_anything_was_measured():
    assert expected(None, {"s": 1}, []) is None
    assert expected(3.0, {"s": 1}, []) == pytest.approx(3.0)


def test_the_nearer_case_counts_more():
    known = [gain(8.0, s=1), gain(1.0, s=128)]
    assert expected(None, {"s": 1}, known) > expected(None, {"s": 128}, known)


@given(st.lists(st.floats(0.1, 50), max_size=5), st.floats(0.1, 50))
def test_expected_gain_lies_among_what_is_known(factors, prior):
    known = [gain(f, s=1) for f in factors]
    low, high = min([*factors, prior]), max([*factors, prior])
    assert low * 0.999 <= expected(prior, {"s": 1}, known) <= high * 1.001


def test_priors_are_what_pages_of_the_impact_brought(catalogue):
    impact = {page.pattern.id: page.pattern.impact for page in catalogue.patterns}
    assert impact == {"o1-group": "high", "a1-spill": "medium"}
    known = {"o1-group": [gain(2.0), gain(8.0)], "gone": [gain(100.0)], "a1-spill": []}
    found = history.priors(known, catalogue)
    # An impact of which nothing was measured takes the mean over all.
    assert found == {name: pytest.approx(4.0) for name in history.IMPACTS}
    assert history.priors({}, catalogue) == {}
