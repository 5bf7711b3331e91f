"""Measures energy of timed runs by NVML: joules per launch, watts, SM clock, throttle reasons."""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from mla_var3.evidence import Energy
from mla_var3.roofline.energy import POWER_CAP

#: Length of the window, and of the warm-up before it, which settles clocks and temperature.
WINDOW_S, WARMUP_S = 1.0, 0.35
#: The least launches of a window; the energy counter moves in steps of some milliseconds.
LEAST_LAUNCHES = 20
PERIOD_S = 0.02
#: Throttle reasons by NVML's constant.
REASONS = {
    "nvmlClocksThrottleReasonSwPowerCap": POWER_CAP,
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "software thermal slowdown",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hardware thermal slowdown",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}


@dataclass
class Samples:
    """SM clocks and throttle reasons, read again and again."""

    clocks_mhz: list[float] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)


class Meter:
    """One board's counters.

    Args:
        nvml: The module ``pynvml``.
        uuid: The board, as NVML names it.
    """

    def __init__(self, nvml: ModuleType | Any, uuid: str) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        self._board = nvml.nvmlDeviceGetHandleByUUID(uuid)

    def joules(self) -> float:
        """Energy that the board has drawn since the driver was loaded."""
        return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._board) / 1e3

    def sample(self, into: Samples) -> None:
        """Read the SM clock and what holds it down."""
        nvml = self._nvml
        into.clocks_mhz.append(nvml.nvmlDeviceGetClockInfo(self._board, nvml.NVML_CLOCK_SM))
        held = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._board)
        into.reasons |= {text for name, text in REASONS.items() if held & getattr(nvml, name)}

    @contextlib.contextmanager
    def sampling(self, period_s: float = PERIOD_S) -> Iterator[Samples]:
        """Samples every ``period_s`` from a thread of its own, once at least."""
        found, ended = Samples(), threading.Event()

        def watch() -> None:
            while True:
                self.sample(found)
                if ended.wait(period_s):
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            thread.join()


def meter() -> Meter | str:
    """The meter of torch's current GPU, or the reason why there is none."""
    import torch

    try:
        import pynvml
    except ImportError:
        return "energy is not measured: pip install nvidia-ml-py"
    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    try:
        found = Meter(pynvml, f"GPU-{uuid}")
        found.joules()
    except pynvml.NVMLError as error:
        return f"energy is not measured: {error}"
    return found


def measure(
    meter: Meter, replay: Callable[[int], float], launch_us: float, window_s: float = WINDOW_S
) -> Energy:
    """Energy of one launch, from a window of them.

    Args:
        meter: The board.
        replay: Runs that many launches back to back to their end; gives microseconds.
        launch_us: About what one takes.
        window_s: How long to measure.
    """

    def launches(seconds: float) -> int:
        return max(round(seconds * 1e6 / launch_us), LEAST_LAUNCHES)

    replay(launches(WARMUP_S))
    count = launches(window_s)
    with meter.sampling() as samples:
        before = meter.joules()
        elapsed_us = replay(count)
        drawn = meter.joules() - before
    return Energy(
        launches=count,
        launch_us=round(elapsed_us / count, 3),
        joules=float(f"{drawn / count:.4g}"),
        watts=round(drawn / (elapsed_us * 1e-6), 1),
        sm_clock_mhz=statistics.median(samples.clocks_mhz),
        samples=len(samples.clocks_mhz),
        throttle=sorted(samples.reasons),
    )
