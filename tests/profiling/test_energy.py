"""Energy of a window of launches, read from an NVML that is played."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from pydantic import ValidationError

from mla_var3.evidence import Energy
from mla_var3.profiling import energy, report
from tests.evidence.making import timed, timed_record


class Board:
    """700 W whenever something runs; 2 us per launch."""

    NVML_CLOCK_SM = 1
    nvmlClocksThrottleReasonSwPowerCap = 4
    nvmlClocksThrottleReasonHwSlowdown = 8
    nvmlClocksThrottleReasonSwThermalSlowdown = 32
    nvmlClocksThrottleReasonHwThermalSlowdown = 64
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128

    class NVMLError(Exception):
        pass

    def __init__(self):
        self.millijoules, self.launched = 5_000_000.0, []

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert uuid == "GPU-a-b"
        return "board"

    def nvmlDeviceGetTotalEnergyConsumption(self, board):
        assert board == "board"
        return self.millijoules

    def nvmlDeviceGetClockInfo(self, board, kind):
        return 1665

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, board):
        return 4 + 32

    def replay(self, count):
        self.launched.append(count)
        self.millijoules += 700e3 * count * 2e-6
        return count * 2.0


@pytest.fixture
def board():
    return Board()


def test_a_window_gives_joules_watts_and_clocks(board):
    found = energy.measure(energy.Meter(board, "GPU-a-b"), board.replay, 2.0, window_s=0.01)
    assert (found.launches, found.launch_us) == (5000, 2.0)
    assert found.joules == pytest.approx(700 * 2e-6)
    assert found.watts == pytest.approx(700)
    assert (found.sm_clock_mhz, found.throttle) == (
        1665, ["power cap", "software thermal slowdown"],
    )  # fmt: skip
    assert found.samples >= 1


def test_the_warm_up_is_not_in_the_window(board):
    energy.measure(energy.Meter(board, "GPU-a-b"), board.replay, 1e6, window_s=0.01)
    assert board.launched == [energy.LEAST_LAUNCHES, energy.LEAST_LAUNCHES]


def test_windows_in_turn_begin_each_round_with_another(board):
    order = []

    def run(name, launch_us):
        def replay(count):
            order.append(name)
            board.replay(count)
            return count * launch_us

        return replay, launch_us

    meter = energy.Meter(board, "GPU-a-b")
    first, second = energy.in_turn(meter, [run("a", 2.0), run("b", 4.0)], 0.01, rounds=3)
    # All warm up first; then each window has a warm-up of its own.
    assert "".join(order) == "ab" + "aabb" + "bbaa" + "aabb"
    assert (first.launches, first.launch_us) == (15000, 2.0)
    assert (second.launches, second.launch_us) == (7500, 4.0)
    assert first.joules == pytest.approx(700 * 2e-6)


def test_windows_count_by_their_launches():
    short, long = (
        Energy(
            launches=n, launch_us=us, joules=j, watts=1e6 * j / us, sm_clock_mhz=mhz, samples=2,
            throttle=held,
        )
        for n, us, j, mhz, held in ((10, 2.0, 0.001, 1900, []), (30, 4.0, 0.002, 1700, ["a"]))
    )  # fmt: skip
    found = energy.together([short, long])
    assert (found.launches, found.samples, found.throttle) == (40, 4, ["a"])
    assert (found.launch_us, found.joules, found.watts) == (3.5, 0.00175, 500.0)
    assert found.sm_clock_mhz == 1800


def test_without_nvml_there_is_a_reason_and_a_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in str(energy.meter())


@pytest.mark.parametrize("refuses", [False, True])
def test_the_meter_is_that_of_torch_s_gpu(monkeypatch, board, refuses):
    def no(_):
        raise Board.NVMLError("Not Supported")

    if refuses:
        monkeypatch.setattr(board, "nvmlDeviceGetTotalEnergyConsumption", no)
    monkeypatch.setitem(sys.modules, "pynvml", board)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = SimpleNamespace(uuid="a-b")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    found = energy.meter()
    if refuses:
        assert found == "energy is not measured: Not Supported"
    else:
        assert isinstance(found, energy.Meter)
        assert found.joules() == 5000


def test_no_launch_draws_nothing():
    with pytest.raises(ValidationError):
        Energy(launches=10, launch_us=1.0, joules=0.0, watts=700.0, samples=1)


def test_the_report_says_what_was_drawn():
    drawn = Energy(
        launches=10, launch_us=934.0, joules=0.637, watts=685.0, sm_clock_mhz=1710, samples=9,
        throttle=["power cap"],
    )  # fmt: skip
    text = report.render_one(timed_record(outcome=timed(934.0, energy=drawn)))
    assert (
        "Back to back: 934.0 us, 0.637 J per launch, 685 W at 1710 MHz, held down by power cap."
        in text
    )
