"""Metrics that compare a stage with its neighbors, and what fires on them."""

from __future__ import annotations

import pytest

from mla_var3 import devices
from mla_var3.knowledge import metrics
from mla_var3.workloads import Cost

from .trees import H200, PROTOCOL, make_record, timed_record

TF32 = {"mma_path": "HGMMA", "mma_instructions": {"HGMMA.64x64x8.F32.TF32": 2}}
BF16 = {"mma_path": "HGMMA", "mma_instructions": {"HGMMA.64x64x16.F32.BF16": 2}}


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


@pytest.mark.parametrize(
    ("static", "rows", "dtype", "wide"),
    [
        ({"mma_path": "FMA"}, 128, "bf16", True),
        ({"mma_path": "FMA"}, 8, "bf16", False),
        ({"mma_path": "FMA"}, None, "bf16", False),
        ({"mma_path": "FMA"}, 128, "float32", False),
        (TF32, 64, "bf16", True),
        (BF16, 64, "fp16", False),
    ],
)  # fmt: skip
def test_operands_are_wide_by_their_instruction_or_for_want_of_one(static, rows, dtype, wide):
    record = make_record(static=static, tiling={"tile_m": rows}, problem={"dtype": dtype})
    assert values(record, "wide_operands") == [wide]


def test_tf32_takes_twice_the_time_of_16_bits(cost):
    cost[""] = Cost(10**15, 1)
    assert values(make_record(static=TF32, problem={"dtype": "bf16"}), "path_loss") == [2]
    assert values(make_record(static=BF16, problem={"dtype": "bf16"}), "path_loss") == [1]


def merged(blocks: int, path: str = "none"):
    """Parts of a result by so many blocks, one of which fits an SM, and the stage that merges."""
    record = two_stages(200_000, names=("split", "merge"))
    split, merge = record.outcome.stages
    merge = merge.model_copy(update={"static": merge.static.model_copy(update={"mma_path": path})})
    stages = [split.model_copy(update={"grid": [blocks, 1, 1]}), merge]
    return record.model_copy(
        update={"outcome": record.outcome.model_copy(update={"stages": stages})}
    )


@pytest.mark.parametrize(("blocks", "loss"), [(132, 1.0), (264, 600 / 400), (66, 1.0)])
def test_parts_beyond_a_wave_cost_what_they_write_and_read(cost, blocks, loss):
    cost |= {"split": Cost(1, 400 * 10**6), "merge": Cost(1, 200 * 10**6)}
    assert values(merged(blocks), "merge_loss") == [pytest.approx(loss)]


def test_a_stage_that_multiplies_merges_nothing(cost):
    cost |= {"split": Cost(1, 400 * 10**6), "merge": Cost(1, 200 * 10**6)}
    assert values(merged(264, path="HGMMA"), "merge_loss") == []
