"""Fits an energy model of a board to records: joules per FLOP, per DRAM byte, and static watts.

A board that runs a kernel back to back draws some power whatever it does, and some energy per FLOP
and per byte moved (the energy roofline of Choi, Bedard, Fowler and Vuduc, IPDPS 2013). Where it
reaches its power limit, the SM clock falls and voltage with it, so that a FLOP costs less by the
square of the clock; DRAM keeps its own clock, and a byte costs what it did:
J = P t + clock^2 a FLOP + c byte, the clock as a share of the full one. Of the powers of the clock
tried for each of the three terms this fits best. Each window is weighted by its own joules, so
that short and long launches count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mla_var3.devices import Device
from mla_var3.evidence import Passed, Record

#: The shortest window that counts, in microseconds: the board's counter of joules moves in steps.
#: Three windows of 0.2 s each said up to 868 W of a board of 700 W (run 025bebd319c7).
LEAST_US = 0.9e6
#: Windows of energy below which no fit is made: three unknowns, and enough to try it on.
LEAST_WINDOWS = 9
#: What a record of energy calls the power limit.
POWER_CAP = "power cap"


class Cost(Protocol):
    """FLOPs and DRAM bytes of some work."""

    @property
    def flops(self) -> int:
        """FLOPs."""

    @property
    def bytes(self) -> int:
        """DRAM bytes."""


_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """A record's launches back to back, and what they drew.

    Attributes:
        record: The record.
        us: Microseconds of a launch.
        joules: Joules of a launch.
        watts: Mean power.
        clock: SM clock as a share of the full one.
        flops: FLOPs of the cost model.
        bytes: DRAM bytes of the cost model.
        held: Whether the power limit held the clock down.
    """

    record: Record
    us: float
    joules: float
    watts: float
    clock: float
    flops: int
    bytes: int
    held: bool

    @property
    def design(self) -> tuple[str, str]:
        """Language and design."""
        return self.record.kernel.language, self.record.kernel.design

    @property
    def per_joule(self) -> tuple[float, float, float]:
        """Seconds, FLOPs at the cost that the clock left them, and bytes, per joule."""
        shares = self.us * 1e-6, self.flops * self.clock**2, self.bytes
        return tuple(share / self.joules for share in shares)  # type: ignore[return-value]


@dataclass(frozen=True)
class Fit:
    """Costs of one board at full clock, by its windows.

    Attributes:
        static: Watts while a kernel runs, whatever it does.
        joules_per_flop: Energy per FLOP of the cost model.
        joules_per_byte: Energy per DRAM byte of the cost model.
        least_per_flop: The least of all fits that leave one design out, at the lowest clock of any
            window.
        least_per_byte: The least of all fits that leave one design out.
        lowest_clock: That clock, as a share of the full one.
        most_watts: The largest mean power of any window.
        windows: Windows that it was fitted to.
        error: Median relative error on a window that the fit did not see.
    """

    static: float
    joules_per_flop: float
    joules_per_byte: float
    least_per_flop: float
    least_per_byte: float
    lowest_clock: float
    most_watts: float
    windows: int
    error: float


def windows(
    records: Iterable[Record], device: Device, cost: Callable[[Record], Cost | None]
) -> Iterator[Window]:
    """The windows of a device that can tell what a DRAM byte costs.

    Launches run without a flush between them: what the L2 holds is not read from DRAM again.

    Args:
        records: Records of any device.
        device: The device.
        cost: FLOPs and DRAM bytes of a record, by the cost model.
    """
    full, cache = device.figure("boost_clock").normalised, device.l2_bytes
    for record in records:
        outcome = record.outcome
        if record.target != device.key or not isinstance(outcome, Passed):
            continue
        energy = outcome.energy
        if energy is None or energy.sm_clock_mhz is None:
            continue
        if energy.launches * energy.launch_us < LEAST_US:
            continue
        work = cost(record)
        if work is not None and work.bytes > cache:
            yield Window(
                record, energy.launch_us, energy.joules, energy.watts, energy.sm_clock_mhz / full,
                work.flops, work.bytes, POWER_CAP in energy.throttle,
            )  # fmt: skip


def fit(found: Sequence[Window]) -> Fit | None:
    """The costs of the board that made the windows.

    Returns:
        None where there are too few windows, or where they do not tell the three apart: a cost
        below 0 means nothing.
    """
    if len(found) < LEAST_WINDOWS:
        return None
    without = [_solve([w for w in found if w.design != left]) for left in {w.design for w in found}]
    costs = _solve(found)
    if min(min(costs), *(min(each) for each in without)) <= 0:
        return None
    lowest = min(window.clock for window in found)
    return Fit(
        static=costs[0],
        joules_per_flop=costs[1],
        joules_per_byte=costs[2],
        least_per_flop=lowest**2 * min(each[1] for each in [costs, *without]),
        least_per_byte=min(each[2] for each in [costs, *without]),
        lowest_clock=lowest,
        most_watts=max(window.watts for window in found),
        windows=len(found),
        error=float(np.median(_unseen(found))),
    )


def _solve(found: Sequence[Window]) -> list[float]:
    """Costs whose sum over each window's shares is 1, by least squares."""
    table: _Array = np.array([window.per_joule for window in found]).reshape(-1, 3)
    scale = np.linalg.norm(table, axis=0)
    # A column of zeros, no FLOPs in any window say, has no cost.
    scale[scale == 0] = 1.0
    costs, *_ = np.linalg.lstsq(table / scale, np.ones(len(table)), rcond=None)
    return [float(cost) for cost in costs / scale]


def _unseen(found: Sequence[Window]) -> list[float]:
    """Relative error on each window by a fit to all others."""
    return [
        abs(float(np.dot(window.per_joule, _solve([*found[:index], *found[index + 1 :]]))) - 1)
        for index, window in enumerate(found)
    ]
