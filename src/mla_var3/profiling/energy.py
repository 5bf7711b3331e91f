"""Measures energy of timed runs by NVML: joules per launch, watts, SM clock, throttle reasons."""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from mla_var3.evidence import Energy
from mla_var3.roofline.energy import POWER_CAP

#: Length of the window, and of the warm-up before it, which settles clocks and temperature.
WINDOW_S, WARMUP_S = 1.0, 0.35
#: Windows of each, where several are measured in turn.
ROUNDS = 3
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


def in_turn(
    meter: Meter,
    runs: Sequence[tuple[Callable[[int], float], float]],
    window_s: float = WINDOW_S,
    rounds: int = ROUNDS,
) -> list[Energy]:
    """Energy of one launch of each of several, from windows in turn.

    A board warms, and its clock falls: each round begins with another one, after all have run once.

    Args:
        meter: The board.
        runs: As ``measure`` takes them: what replays launches, and about what one takes.
        window_s: How long to measure each at a time: the counter of joules moves in steps.
        rounds: Windows of each.
    """
    for replay, launch_us in runs:
        replay(max(round(WARMUP_S * 1e6 / launch_us), LEAST_LAUNCHES))
    found: list[list[Energy]] = [[] for _ in runs]
    for number in range(rounds):
        for i in range(len(runs)):
            at = (i + number) % len(runs)
            found[at].append(measure(meter, *runs[at], window_s, WARMUP_S / rounds))
    return [together(windows) for windows in found]


def together(windows: Sequence[Energy]) -> Energy:
    """Several windows of the same launches as one."""
    count = sum(x.launches for x in windows)
    drawn = sum(x.launches * x.joules for x in windows)
    elapsed_us = sum(x.launches * x.launch_us for x in windows)
    clocks = [x.sm_clock_mhz for x in windows if x.sm_clock_mhz is not None]
    return Energy(
        launches=count,
        launch_us=round(elapsed_us / count, 3),
        joules=float(f"{drawn / count:.4g}"),
        watts=round(drawn / (elapsed_us * 1e-6), 1),
        sm_clock_mhz=statistics.median(clocks) if clocks else None,
        samples=sum(x.samples for x in windows),
        throttle=sorted({reason for x in windows for reason in x.throttle}),
    )


def measure(
    meter: Meter,
    replay: Callable[[int], float],
    launch_us: float,
    window_s: float = WINDOW_S,
    warmup_s: float = WARMUP_S,
) -> Energy:
    """Energy of one launch, from a window of them.

    Args:
        meter: The board.
        replay: Runs that many launches back to back to their end; gives microseconds.
        launch_us: About what one takes.
        window_s: How long to measure.
        warmup_s: How long to run before.
    """

    def launches(seconds: float) -> int:
        return max(round(seconds * 1e6 / launch_us), LEAST_LAUNCHES)

    replay(launches(warmup_s))
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
