"""The two ceilings of a roofline: arithmetic throughput and DRAM bandwidth."""

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
class Ceilings:
    """What a device can do at most, for one element type.

    Attributes:
        tflops: Arithmetic throughput in TFLOP/s (10^12 floating-point operations per second).
        gbps: DRAM bandwidth in GB/s (10^9 bytes per second).
        source_kind: ``measured`` on the device, ``published`` by somebody, which of the two is
            which where they differ, or ``given`` by the caller.
        sources: One sentence a figure: value, condition, who says so.
    """

    tflops: float
    gbps: float
    source_kind: SourceKind = "given"
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("tflops", self.tflops), ("gbps", self.gbps)):
            if not 0 < value < float("inf"):
                raise DeviceFigureError(f"ceiling {name} must be a positive number, got {value}")

    @property
    def ridge(self) -> float:
        """Arithmetic intensity, in FLOP per byte, at which both ceilings bind equally."""
        return self.tflops * 1e3 / self.gbps
