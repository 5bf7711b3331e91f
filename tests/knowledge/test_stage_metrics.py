"""Metrics that compare a stage with its neighbors, and what fires on them."""

from __future__ import annotations

import pytest

from mla_var3 import devices
from mla_var3.knowledge import metrics
from mla_var3.workloads import Cost

from .trees import H200, PROTOCOL, make_record, timed_record


def two_stages(shared, total_us=20.0, names=("attention.old", "attention.new")):
    """Two stages of 10 us each, with some shared memory per block."""
    record = timed_record("v0")
    stage = record.outcome.stages[0]
    facts = stage.static.model_copy(update={"shared_bytes": shared})
    stages = [stage.model_copy(update={"name": name, "static": facts}) for name in names]
    times = ("median_us", "min_us", "max_us")
    total = record.outcome.total.model_copy(update=dict.fromkeys(times, total_us))
    return record.model_copy(
        update={"outcome": record.outcome.model_copy(update={"stages": stages, "total": total})}
    )


def values(record, name):
    return [r.value for r in metrics.readings_of(record, metrics.metric(name))]


@pytest.mark.parametrize(("shared", "fits"), [(1024, True), (200_000, False)])
def test_stages_of_a_group_fit_side_by_side_or_not(shared, fits):
    assert values(two_stages(shared), "side_by_side") == [fits, fits]


def test_stages_in_a_row_are_not_asked_to_fit():
    assert values(two_stages(1024, names=("attention", "combine")), "side_by_side") == []


@pytest.mark.parametrize(("total", "saved"), [(20.0, 0.0), (10.0, 0.5)])
def test_overlap_is_what_running_together_saves(total, saved):
    assert values(two_stages(1024, total), "overlap") == [pytest.approx(saved)]


def test_shares_of_the_work_add_up_to_one(cost):
    cost |= {"attention.old": Cost(900, 1), "attention.new": Cost(100, 1)}
    assert values(two_stages(1024), "flops_share") == [0.9, 0.1]


@pytest.mark.parametrize("flushed", [True, False])
def test_the_protocol_says_whether_l2_was_flushed(flushed):
    stage = timed_record("v0").outcome.stages[0].model_dump()
    duration = timed_record("v0").outcome.total
    record = make_record(
        "v0", stage=stage | {"counters": {}},
        outcome={"total": duration, "protocol": PROTOCOL | {"l2_flush": flushed}},
    )  # fmt: skip
    assert values(record, "l2_flushed") == [flushed]


def test_traffic_is_measured_in_l2_sizes(cost):
    cost[""] = Cost(1, 2 * devices.load(H200["key"]).l2_bytes)
    assert values(timed_record("v0"), "bytes_over_l2") == [2]
