"""Floors on run time: of a stage, of stages in a row, of stages together."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import DeviceFigureError, PlanError
from mla_var3.roofline import (
    Ceilings,
    Prediction,
    predict,
    predict_concurrent,
    predict_pipeline,
)

H200 = Ceilings(694.0, 4270.0)
counts = st.floats(min_value=1, max_value=1e15)
stages = st.builds(predict, counts, counts, st.just(H200))


def test_decode_floor_on_h200() -> None:
    """Latent decode at b=32, h=128, s=1, t=4096, k=512, p=64: 36.5 GFLOP against 160 MB."""
    b, h, s, t, k, p, w = 32, 128, 1, 4096, 512, 64, 2
    flops = 2 * b * h * s * t * (2 * k + p)
    bytes_ = w * (b * h * s * (2 * k + p) + b * t * (k + p))
    floor = predict(flops, bytes_, H200)
    assert floor.time_us == pytest.approx(52.6, abs=0.1)
    assert floor.bound == "compute"
    assert "36.5" in floor.explanation
    assert floor.ridge == pytest.approx(162.5, abs=0.1)


@given(flops=counts, bytes_=counts)
def test_a_stage_takes_the_longer_of_both(flops: float, bytes_: float) -> None:
    floor = predict(flops, bytes_, H200)
    assert floor.time_us == max(floor.compute_us, floor.memory_us)
    assert floor.intensity == pytest.approx(flops / bytes_)
    if floor.intensity > floor.ridge * (1 + 1e-9):
        assert floor.bound == "compute"
    if floor.intensity < floor.ridge * (1 - 1e-9):
        assert floor.bound == "memory"


@given(parts=st.lists(stages, min_size=1, max_size=5))
def test_pipeline_adds_up(parts: list[Prediction]) -> None:
    whole = predict_pipeline(parts)
    assert whole.time_us == pytest.approx(sum(part.time_us for part in parts))
    assert whole.flops == pytest.approx(sum(part.flops for part in parts))
    assert whole.parts == tuple(parts)


@given(parts=st.lists(stages, min_size=1, max_size=5))
def test_concurrency_shares_the_ceilings(parts: list[Prediction]) -> None:
    together, serial = predict_concurrent(parts), predict_pipeline(parts)
    assert max(part.time_us for part in parts) <= together.time_us <= serial.time_us * (1 + 1e-12)
    # The floor of the summed work is the floor of running it together.
    summed = predict(together.flops, together.bytes, H200)
    assert together.time_us == pytest.approx(summed.time_us)


@given(stage=stages)
def test_one_part_changes_nothing(stage: Prediction) -> None:
    for whole in (predict_pipeline([stage]), predict_concurrent([stage])):
        assert whole.time_us == stage.time_us
        assert whole.bound == stage.bound
        assert whole.ridge == stage.ridge


@given(head=st.lists(stages, min_size=1, max_size=3), tail=st.lists(stages, min_size=1, max_size=3))
def test_nesting_never_predicts_less_than_the_parts_need(
    head: list[Prediction], tail: list[Prediction]
) -> None:
    inner = predict_pipeline(head)
    whole = predict_concurrent([inner, *tail])
    assert whole.time_us >= inner.time_us
    assert whole.time_us <= predict_pipeline([*head, *tail]).time_us * (1 + 1e-12)


def test_compute_and_memory_stage_overlap_completely() -> None:
    compute = predict(694e6, 4270, H200)  # 1 us of arithmetic
    memory = predict(0, 4270e3, H200)  # 1 us of traffic
    together = predict_concurrent([compute, memory])
    assert together.time_us == pytest.approx(1.001)
    assert predict_pipeline([compute, memory]).time_us == pytest.approx(2.0)
    assert "share both ceilings" in together.explanation


def test_slow_pipeline_sets_the_bound_of_a_group() -> None:
    inner = predict_pipeline([predict(694e6, 0, H200), predict(0, 3 * 4270e3, H200)])
    whole = predict_concurrent([inner, predict(1, 1, H200)])
    assert whole.time_us == inner.time_us
    assert whole.bound == inner.bound == "memory"


def test_mixed_element_types_have_a_common_ridge() -> None:
    vector = Ceilings(67.0, 4270.0)
    parts = [predict(694e6, 100, H200), predict(67e6, 100, vector)]
    assert predict_pipeline(parts).ridge == pytest.approx((694 + 67) / 2 * 1e3 / 4270)
    idle = [predict(0, 1, H200), predict(0, 1, vector)]
    assert predict_pipeline(idle).ridge == H200.ridge


def test_edges() -> None:
    assert predict(1, 0, H200).intensity == math.inf
    assert predict(0, 0, H200).intensity == 0
    assert predict(0, 0, H200).time_us == 0


@pytest.mark.parametrize("count", [-1, math.inf, math.nan])
def test_counts_that_make_no_sense(count: float) -> None:
    with pytest.raises(PlanError, match="FLOPs"):
        predict(count, 1, H200)
    with pytest.raises(PlanError, match="bytes"):
        predict(1, count, H200)


def test_no_parts() -> None:
    with pytest.raises(PlanError, match="pipeline without stages"):
        predict_pipeline([])
    with pytest.raises(PlanError, match="concurrent group without stages"):
        predict_concurrent([])


@pytest.mark.parametrize("bad", [0, -1, math.inf, math.nan])
def test_ceilings_must_be_positive(bad: float) -> None:
    with pytest.raises(DeviceFigureError, match="tflops"):
        Ceilings(bad, 1)
    with pytest.raises(DeviceFigureError, match="gbps"):
        Ceilings(1, bad)
