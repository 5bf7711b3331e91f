"""The energy model finds costs again that made the windows, and says how far off it is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.records import Energy, Record
from mla_var3.roofline.energy import LEAST_WINDOWS, fit
from tests.factories import duration, passed, record


@dataclass(frozen=True)
class Costs:
    watts: float
    flop: float
    byte: float


def window(costs: Costs, us: float, flops: int, bytes: int, noise: float = 1.0) -> Record:
    joules = noise * (costs.watts * us / 1e6 + costs.flop * flops + costs.byte * bytes)
    energy = Energy(launches=100, launch_us=us, joules=joules, watts=joules / us * 1e6, samples=9)
    made = passed(total=duration(us)).model_copy(
        update={"energy": energy, "flops": flops, "bytes": bytes}
    )
    return record(mode="event", outcome=made)


def windows(costs: Costs, noise: float = 1.0) -> list[Record]:
    """Windows in which time, FLOPs and bytes vary apart from each other."""
    return [
        window(costs, us, flops, bytes, noise if (index % 2) else 1 / noise)
        for index, (us, flops, bytes) in enumerate(
            (us, flops, bytes)
            for us in (80.0, 900.0)
            for flops in (10**9, 10**11)
            for bytes in (10**7, 10**8, 10**9)
        )
    ]


@given(
    st.builds(Costs, st.floats(50, 400), st.floats(1e-13, 1e-11), st.floats(1e-11, 1e-9)),
)
def test_the_fit_finds_the_costs_again(costs):
    model = fit(windows(costs))
    assert model is not None
    assert model.watts == pytest.approx(costs.watts, rel=1e-4)
    assert model.joules_per_flop == pytest.approx(costs.flop, rel=1e-4)
    assert model.joules_per_byte == pytest.approx(costs.byte, rel=1e-4)
    assert model.windows == 12
    assert model.error < 1e-4


def test_the_error_is_that_of_a_window_not_seen():
    costs = Costs(280, 6e-13, 9e-11)
    model = fit(windows(costs, noise=1.1))
    assert model is not None
    assert 0.03 < model.error < 0.3


def test_few_windows_or_costs_below_zero_make_no_model():
    costs = Costs(280, 6e-13, 9e-11)
    assert fit(windows(costs)[: LEAST_WINDOWS - 1]) is None
    assert fit([record()]) is None
    assert fit(windows(Costs(300, -1e-13, 9e-11))) is None


def test_joules_and_the_power_cap():
    model = fit(windows(Costs(300, 1e-12, 1e-10)))
    assert model is not None
    assert model.joules(10**12, 10**9, 1000) == pytest.approx(0.3 + 1 + 0.1, rel=1e-3)
    least = model.least_us(10**12, 10**9, 700)
    assert model.joules(10**12, 10**9, least) / least * 1e6 == pytest.approx(700, rel=1e-3)
