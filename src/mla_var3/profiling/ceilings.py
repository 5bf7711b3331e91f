"""``settled``: the time of work that runs for long, once clocks and power have stopped moving.

50 products of 8192 x 8192 x 8192 take 75 ms. A board at its power limit takes longer than that to
lower its clock, so that their median told how cool the board had been before: two runs of one
script differed by 15 %. Here windows of half a second run one after the other until three agree.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mla_var3.errors import ToolchainError
from mla_var3.profiling import energy, timing

if TYPE_CHECKING:
    from mla_var3.profiling.timing import Timer

#: Seconds of a window; windows that have to agree, by which share, and how many there may be.
WINDOW_S, AGREEING, SHARE, MOST = 0.5, 3, 0.01, 24
#: Runs that a first estimate takes.
FIRST = 10


@dataclass(frozen=True)
class Settled:
    """A time that windows agree on.

    Attributes:
        first_us: Median of the first window, which clocks were still settling in.
        windows_us: Medians of the windows that agree.
        clock_mhz: Median SM clock of the last window; None where the board tells none.
        throttle: What held the clock down in it.
    """

    first_us: float
    windows_us: tuple[float, ...]
    clock_mhz: float | None = None
    throttle: tuple[str, ...] = ()

    @property
    def median_us(self) -> float:
        """The time."""
        return statistics.median(self.windows_us)

    def __str__(self) -> str:
        clock = "" if self.clock_mhz is None else f" at {self.clock_mhz:,.0f} MHz"
        held = f" ({', '.join(self.throttle)})" if self.throttle else ""
        return f"median of {len(self.windows_us)} windows of {WINDOW_S:g} s that agree{clock}{held}"


def agree(windows: Sequence[float]) -> bool:
    """Whether the last windows differ by no more than their share."""
    last = windows[-AGREEING:]
    return len(last) == AGREEING and max(last) <= (1 + SHARE) * min(last)


def settled(timer: Timer, body: Callable[[], Any]) -> Settled:
    """Time work in windows until the last ones agree.

    Raises:
        ToolchainError: They never do: another program uses the GPU.
    """
    graph, meter = timing.capture(body), energy.meter()
    count = max(round(WINDOW_S * 1e6 / statistics.median(timer.replays_us(graph, FIRST))), FIRST)
    windows: list[float] = []
    samples = energy.Samples()
    while not agree(windows):
        if len(windows) == MOST:
            raise ToolchainError(
                f"{MOST} windows of {WINDOW_S:g} s do not agree within {SHARE:.0%} (the last: "
                f"{', '.join(f'{us:,.1f}' for us in windows[-AGREEING:])} us); is the GPU in use?"
            )
        watch = contextlib.nullcontext(samples) if isinstance(meter, str) else meter.sampling()
        with watch as samples:
            windows.append(statistics.median(timer.replays_us(graph, count)))
    clock = statistics.median(samples.clocks_mhz) if samples.clocks_mhz else None
    return Settled(windows[0], tuple(windows[-AGREEING:]), clock, tuple(sorted(samples.reasons)))
