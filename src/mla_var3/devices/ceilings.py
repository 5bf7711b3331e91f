"""``Ceilings``: a device's arithmetic throughput, DRAM bandwidth and power for one element type.

The roofline model predicts times from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mla_var3.errors import DeviceFigureError

SourceKind = Literal[
    "measured",
    "published",
    "published compute, measured bandwidth",
    "measured compute, published bandwidth",
    "given",
]


@dataclass(frozen=True)
class Power:
    """What work costs a board that may draw so much.

    Attributes:
        watts: What the board may draw.
        joules_per_flop: Energy per FLOP, at full clock where ``tflops`` is given. It falls with
            the square of the SM clock, as voltage falls with it.
        joules_per_byte: Energy per DRAM byte; DRAM has a clock of its own.
        static: Watts while a kernel runs, whatever it does.
        tflops: Arithmetic rate at full clock in TFLOP/s, before power lowers the clock; None where
            the clock is left open, as for a bound.
        source: One sentence: where the figures come from.
    """

    watts: float
    joules_per_flop: float
    joules_per_byte: float
    static: float = 0.0
    tflops: float | None = None
    source: str = ""

    def work(self, flops: float, bytes: float, clock: float = 1.0) -> float:
        """Joules of the work alone at a share of the full clock, without those that time costs."""
        return self.joules_per_flop * flops * clock**2 + self.joules_per_byte * bytes

    def us(self, flops: float, bytes: float) -> float:
        """Microseconds that the work takes back to back, as far as power decides.

        With the clock left open, no less than its joules at full power. Else the board lowers the
        clock until it holds its power, and arithmetic slows in proportion: full time T, time t and
        clock T / t satisfy watts t = static t + a FLOP (T / t)^2 + c byte. That is a cubic in t
        with one positive root, which is Cardano's.

        Args:
            flops: FLOPs; with ``bytes`` at 0, not 0.
            bytes: DRAM bytes.
        """
        if self.tflops is None:
            return 1e6 * self.work(flops, bytes) / self.watts
        full, free = flops / (self.tflops * 1e12), self.watts - self.static
        third = self.joules_per_byte * bytes / free / 3
        half = self.joules_per_flop * flops * full**2 / free / 2
        root = (half + third**3 + (half * (half + 2 * third**3)) ** 0.5) ** (1 / 3)
        return 1e6 * (third + root + third**2 / root)

    def clock(self, flops: float, us: float) -> float:
        """Share of the full clock at which arithmetic alone takes so many microseconds, up to 1."""
        return 1.0 if self.tflops is None else min(1.0, flops / (self.tflops * 1e6) / us)

    def joules(self, flops: float, bytes: float, us: float) -> float:
        """Joules of work that takes so many microseconds, back to back and held to the power."""
        drawn = self.static * us / 1e6 + self.work(flops, bytes, self.clock(flops, us))
        return min(drawn, self.watts * us / 1e6)


@dataclass(frozen=True)
class Ceilings:
    """What a device can do at most, for one element type.

    Attributes:
        tflops: Arithmetic throughput in TFLOP/s (10^12 floating-point operations per second).
        gbps: DRAM bandwidth in GB/s (10^9 bytes per second).
        source_kind: ``measured`` on the device, ``published`` by somebody, which of the two is
            which where they differ, or ``given`` by the caller.
        sources: One sentence a figure: value, condition, who says so.
        power: What FLOPs and bytes cost in joules, and the power for them; None where nobody
            measured it.
    """

    tflops: float
    gbps: float
    source_kind: SourceKind = "given"
    sources: tuple[str, ...] = ()
    power: Power | None = None

    def __post_init__(self) -> None:
        for name, value in (("tflops", self.tflops), ("gbps", self.gbps)):
            if not 0 < value < float("inf"):
                raise DeviceFigureError(f"ceiling {name} must be a positive number, got {value}")

    @property
    def ridge(self) -> float:
        """Arithmetic intensity, in FLOP per byte, at which both ceilings bind equally."""
        return self.tflops * 1e3 / self.gbps
