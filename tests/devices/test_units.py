"""Unit conversion: exact, monotone, and refusing what does not measure the metric."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.devices import units
from mla_var3.errors import DeviceFigureError, UnknownNameError


@pytest.mark.parametrize(
    ("metric", "value", "unit", "expected"),
    [
        ("dram_bandwidth", 8.1, "TB/s", 8100.0),
        ("dram_bandwidth", 1792, "GB/s", 1792.0),
        ("dram_capacity", 141, "GB", 141 * 10**9),
        ("dram_capacity", 1, "GiB", 2**30),
        ("shared_memory_per_sm", 228, "KiB", 233472),
        ("shared_memory_per_sm", 228, "KB", 233472),
        ("l2_size", 131072, "KB", 128 * 2**20),
        ("l2_size", 60, "MB", 60 * 2**20),
        ("tensor_bf16_fp32acc", 2.2, "PFLOPS", 2200.0),
        ("fp32_vector", 56280.0, "GFLOP/s", 56.28),
        ("measured_dram_bandwidth", 4.27, "TB/s", 4270.0),
        ("boost_clock", 2.41, "GHz", 2410.0),
        ("registers_per_sm", 512, "KiB", 131072),
    ],
)
def test_known_conversions(metric: str, value: float, unit: str, expected: float) -> None:
    assert units.normalise(metric, value, unit) == expected


@given(
    metric=st.sampled_from(sorted(units.METRICS)),
    data=st.data(),
    value=st.integers(min_value=1, max_value=10**6),
)
def test_conversion_is_linear_in_the_value(metric: str, data: st.DataObject, value: int) -> None:
    quantity = units.quantity(metric)
    unit = data.draw(st.sampled_from(sorted(quantity.factors)))
    one = units.normalise(metric, 1, unit)
    assert units.normalise(metric, value, unit) == pytest.approx(value * one, rel=1e-12)
    if quantity.integral:
        assert isinstance(units.normalise(metric, value, unit), int)


@given(value=st.decimals(min_value=1, max_value=10**4, places=3))
def test_larger_units_agree_with_smaller_ones(value: object) -> None:
    tera = units.normalise("dram_bandwidth", float(str(value)), "TB/s")
    assert tera == units.normalise("dram_bandwidth", float(str(value * 1000)), "GB/s")  # type: ignore[operator]


@given(
    metric=st.sampled_from(sorted(units.METRICS)),
    unit=st.text(max_size=8) | st.sampled_from(["GB/s", "KiB", "TFLOPS", "W"]),
)
def test_unit_of_another_quantity_is_refused(metric: str, unit: str) -> None:
    if unit in units.quantity(metric).factors:
        return
    with pytest.raises(DeviceFigureError, match="cannot be given in"):
        units.normalise(metric, 1, unit)


def test_counts_must_be_whole() -> None:
    with pytest.raises(DeviceFigureError, match="not whole"):
        units.normalise("sm_count", 1.5, "SMs")


def test_capacity_is_rounded_to_bytes() -> None:
    assert units.normalise("dram_capacity", 95.1, "GiB") == round(95.1 * 2**30)


def test_unknown_metric() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'dram_bandwidth'"):
        units.quantity("dram_bandwith")
