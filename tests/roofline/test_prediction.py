"""Bounds and reference times: of work at given rates, and of records."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import devices, evidence
from mla_var3.errors import DeviceFigureError, PlanError
from mla_var3.roofline import Ceilings, predict
from mla_var3.roofline.prediction import (
    bound,
    device_of,
    devices_of,
    dtype_of,
    fraction,
    reference,
)
from tests.evidence.making import duration, passed, record, stage, timed, timed_record

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


# -- of records -----------------------------------------------------------------------------------

#: Compute at 989.5 TFLOP/s, and at the 694 that cuBLAS attained.
HEAVY = {"flops": 989_500_000_000, "bytes": 48_000_000}


def test_a_bound_is_of_the_records_own_device() -> None:
    made = timed_record(2000.0, outcome=timed(2000.0, **HEAVY))
    least = bound(made)
    assert least is not None
    assert (least.device, least.bound) == ("nvidia-h200-sxm", "compute")
    assert least.time_us == pytest.approx(1000.0)
    assert least.memory_us == pytest.approx(10.0)
    assert fraction(made) == pytest.approx(0.5)


def test_a_reference_is_slower_than_the_bound_and_says_whose_rate_it_is() -> None:
    made = timed_record(2000.0, outcome=timed(2000.0, **HEAVY))
    least, attained = bound(made), reference(made)
    assert least is not None
    assert attained is not None
    assert attained.compute_us == pytest.approx(989.5e3 / 694)
    assert attained.time_us == max(attained.compute_us, attained.power_us)
    assert attained.time_us > least.time_us
    assert "measured_tensor_bf16" in attained.rates.sources[0]


def test_a_stage_has_a_bound_and_a_share_of_its_own() -> None:
    part = stage(flops=0, bytes=48_000_000, duration=duration(20.0))
    made = timed_record(outcome=timed(100.0, stages=[part], **HEAVY))
    least = bound(made, part)
    assert least is not None
    assert (least.time_us, least.bound) == (pytest.approx(10.0), "memory")
    assert fraction(made, part) == pytest.approx(0.5)
    assert fraction(made, stage()) is None  # Not timed alone.


def test_a_time_that_no_kernel_can_take_shows() -> None:
    forged = timed_record(1.0, outcome=timed(1.0, **HEAVY))
    share = fraction(forged)
    assert share is not None
    assert share > 1


def test_runs_without_times_or_numbers() -> None:
    assert fraction(record()) is None
    assert bound(record()) is not None
    for outcome in (evidence.Failed(error="no"), evidence.Skipped(reason="no")):
        made = record(outcome)
        assert (bound(made), reference(made), fraction(made)) == (None, None, None)
    on_cpu = record(passed(), target="cpu", mode="disabled")
    assert (device_of(on_cpu), devices_of(on_cpu), bound(on_cpu)) == (None, [], None)


@pytest.mark.parametrize("target", ["static/sm_87", "static/sm_70"])
def test_an_arch_that_no_device_stands_for(target: str) -> None:
    made = record(passed(), target=target)
    assert device_of(made) is None
    assert bound(made) is None


def test_an_element_type_without_a_rate() -> None:
    assert bound(record(problem={"dtype": "complex64"})) is None
    assert dtype_of(record(problem={})) == "bf16"


def test_a_device_that_nobody_knows() -> None:
    unknown = evidence.Device(key="nvidia-x1", name="X", arch="sm_90", driver="1")
    made = timed_record(device=unknown, target="nvidia-x1")
    assert (device_of(made), devices_of(made), fraction(made)) == (None, [], None)


def test_a_compile_speaks_of_all_devices_of_its_arch() -> None:
    found = {device.key for device in devices_of(record(target="static/sm_90a"))}
    assert {"nvidia-h200-sxm", "nvidia-h100-sxm"} <= found
    assert found <= {device.key for device in devices.all_devices() if device.sm == "sm_90"}
    assert [device.key for device in devices_of(timed_record())] == ["nvidia-h200-sxm"]
    for device in devices_of(record()):
        assert bound(record(), device=device) is not None


def test_no_committed_record_beats_its_bound() -> None:
    shares = []
    for made in evidence.find():
        parts = [None, *getattr(made.outcome, "stages", ())]
        for part in parts:
            if (share := fraction(made, part)) is not None:
                assert share <= 1, (made.path, part)
                shares.append(share)
    assert len(shares) > 100
