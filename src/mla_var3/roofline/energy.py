"""What a FLOP and a DRAM byte cost in joules on one board, fitted to records that measured energy.

A board that runs a kernel back to back draws some power whatever it does, and some energy per FLOP
and per byte moved: J = P t + a FLOP + c byte (the energy roofline of Choi, Bedard, Fowler and
Vuduc, IPDPS 2013). The three are fitted to the windows that records hold, each weighted by its own
joules, so that short and long launches count alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mla_var3.records import Passed, Record

#: Windows of energy below which no fit is made: three unknowns, and enough to try it on.
LEAST_WINDOWS = 9

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class EnergyModel:
    """Energy of some work on one board.

    Attributes:
        watts: Power while a kernel runs, whatever it does.
        joules_per_flop: Energy per FLOP of the cost model.
        joules_per_byte: Energy per DRAM byte of the cost model.
        windows: Records that it was fitted to.
        error: Median relative error on a window that the fit did not see.
    """

    watts: float
    joules_per_flop: float
    joules_per_byte: float
    windows: int
    error: float

    def work(self, flops: float, bytes: float) -> float:
        """Joules of the work alone, without the power that time costs."""
        return self.joules_per_flop * flops + self.joules_per_byte * bytes

    def joules(self, flops: float, bytes: float, us: float) -> float:
        """Joules of work that takes so many microseconds."""
        return self.watts * us / 1e6 + self.work(flops, bytes)

    def least_us(self, flops: float, bytes: float, cap: float) -> float:
        """Microseconds that the work takes at least, back to back, under a power cap in watts."""
        return 1e6 * self.work(flops, bytes) / (cap - self.watts)


def fit(records: Iterable[Record]) -> EnergyModel | None:
    """The model of the records of one board that hold energy.

    Returns:
        None where there are too few windows, or where they do not tell the three apart: a cost
        below 0 means nothing.
    """
    rows = [row for record in records if (row := _row(record)) is not None]
    if len(rows) < LEAST_WINDOWS:
        return None
    costs = _solve(rows)
    if min(costs) <= 0:
        return None
    watts, flop, byte = costs
    return EnergyModel(watts, flop, byte, len(rows), float(np.median(_unseen(rows))))


def _row(record: Record) -> tuple[float, float, float] | None:
    """Seconds, FLOPs and bytes per joule of a record's window; None without one."""
    outcome = record.outcome
    if not isinstance(outcome, Passed) or outcome.energy is None:
        return None
    spent = outcome.energy.joules
    return outcome.energy.launch_us / 1e6 / spent, outcome.flops / spent, outcome.bytes / spent


def _solve(rows: Sequence[Sequence[float]]) -> list[float]:
    """Costs whose sum over each row is 1, by least squares."""
    table: _Array = np.array(rows)
    scale = np.linalg.norm(table, axis=0)
    # A column of zeros, no FLOPs in any window say, has no cost.
    scale[scale == 0] = 1.0
    found, *_ = np.linalg.lstsq(table / scale, np.ones(len(table)), rcond=None)
    return [float(cost) for cost in found / scale]


def _unseen(rows: Sequence[Sequence[float]]) -> list[float]:
    """Relative error on each window by a fit to all others."""
    return [
        abs(float(np.dot(row, _solve([*rows[:index], *rows[index + 1 :]]))) - 1)
        for index, row in enumerate(rows)
    ]
