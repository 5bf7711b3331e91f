"""Advice on a run to which no page applies: power, a bound that is near, what to measure."""

import pytest

from mla_var3.evidence.model import Energy
from mla_var3.knowledge import deciding, match

from .trees import ANTI, PAGE, failed_record, make_record, timed_record

QUIET = {"spill_loads": 0, "spill_stores": 0, "registers": 100, "mma_path": "HGMMA"}


def said(record, tree):
    return dict(deciding.verdict(record, tree.catalogue()))


def test_where_a_page_is_decided_nothing_else_is_said(tree):
    assert match(make_record("v0"), tree.catalogue())
    assert said(make_record("v0"), tree) == {}


def test_a_run_that_failed_is_not_judged(tree):
    assert said(failed_record("v0"), tree) == {}


def test_a_good_kernel_gets_nothing_found(tree):
    found = said(make_record("v0", static=QUIET), tree)["Advice"]
    assert found.startswith("Nothing found")


def test_where_facts_do_not_decide_the_measurement_is_named(tree):
    tree.replace(
        PAGE,
        'metric: spill_instructions\n    comparison: ">"',
        'metric: tensor_pipe_percent\n    comparison: "<"',
    )
    found = said(make_record("v0", static=QUIET), tree)[deciding.MEASURE]
    assert "Measure `tensor_pipe_percent` with `--prof_type=ncu`" in found
    assert found.endswith("it decides o1-group.")


def test_what_a_stated_value_rules_out_is_not_asked_for(tree):
    tree.replace(PAGE, "value: 255\n", "value: 90\n")
    tree.replace(PAGE, "metric: num_worker_warps", "metric: tensor_pipe_percent")
    asked = said(make_record("v0", static=QUIET), tree)[deciding.MEASURE]
    assert "tensor_pipe_percent" in asked
    ruled_out = said(make_record("v0", static={**QUIET, "registers": 80}), tree)["Advice"]
    assert ruled_out.startswith("Nothing found")


def test_a_page_fired_by_a_problem_alone_is_no_advice(tree):
    tree.replace(
        ANTI,
        'metric: mma_path, comparison: "==", value: HMMA',
        'metric: batch, comparison: ">", value: 0',
    )
    found = [m.page.pattern.id for m in match(make_record("v0", static=QUIET), tree.catalogue())]
    assert found == []


def drawn(clock, throttle):
    record = timed_record("v0")
    energy = Energy(launches=9, launch_us=10.0, joules=1.0, watts=690.0, samples=3,
                    sm_clock_mhz=clock, throttle=throttle)  # fmt: skip
    outcome = record.outcome.model_copy(update={"energy": energy})
    return record.model_copy(update={"outcome": outcome})


@pytest.mark.parametrize(
    ("clock", "throttle", "held"),
    [(1400.0, ["power cap"], True), (1970.0, ["power cap"], False), (1400.0, [], False)],
)
def test_power_is_a_cause_where_it_holds_the_clock_down(clock, throttle, held):
    told = deciding.power(drawn(clock, throttle))
    assert bool(told) == held
    assert not held or "1400 of 1980 MHz" in told


def test_near_its_bound_nothing_is_found(tree, monkeypatch):
    record = make_record("v0", static=QUIET)
    monkeypatch.setattr(deciding, "most", lambda *_: 1.05)
    assert said(record, tree)["Advice"] == "Nothing found: the bound is 95% of the measured time."
