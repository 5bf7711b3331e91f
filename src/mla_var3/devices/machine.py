"""``Machine``: a device's SM count and rates, by which a plan chooses open sizes and grids."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.devices.ceilings import Ceilings, Power


@dataclass(frozen=True)
class Machine:
    """Rates and counts of a device for one element type.

    Attributes:
        key: Device key.
        tflops: Arithmetic throughput that kernels attain, TFLOP/s.
        gbps: DRAM bandwidth that kernels attain, GB/s.
        sm_count: Streaming multiprocessors.
        power: What FLOPs and bytes cost in joules; None where nobody measured it.
    """

    key: str
    tflops: float
    gbps: float
    sm_count: int
    power: Power | None = None

    @property
    def rates(self) -> Ceilings:
        """The rates and the power as the ceilings of a roofline."""
        return Ceilings(self.tflops, self.gbps, power=self.power)

    @property
    def ridge(self) -> float:
        """FLOPs done while one byte moves, when both rates are attained."""
        return self.tflops * 1e3 / self.gbps
