"""Bounds and reference times: of work at given rates, and of records."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import DeviceFigureError, PlanError
from mla_var3.roofline import Ceilings, predict

H200 = Ceilings(694.0, 4270.0)
counts = st.floats(min_value=1, max_value=1e15)


def test_decode_floor_on_h200() -> None:
    """Latent decode at b=32, h=128, s=1, t=4096, k=512, p=64: 36.5 GFLOP against 160 MB."""
    b, h, s, t, k, p, w = 32, 128, 1, 4096, 512, 64, 2
    flops = 2 * b * h * s * t * (2 * k + p)
    bytes_ = w * (b * h * s * (2 * k + p) + b * t * (k + p))
    floor = predict(flops, bytes_, H200)
    assert floor.time_us == pytest.approx(52.6, abs=0.1)
    assert floor.bound == "compute"
    assert "694 TFLOP/s" in floor.explain()
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


@pytest.mark.parametrize("bad", [0, -1, math.inf, math.nan])
def test_ceilings_must_be_positive(bad: float) -> None:
    with pytest.raises(DeviceFigureError, match="tflops"):
        Ceilings(bad, 1)
    with pytest.raises(DeviceFigureError, match="gbps"):
        Ceilings(1, bad)
