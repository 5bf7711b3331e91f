"""Formats profiler counters of a record's stages: rows of a table, and their roofline as CSV.

``places`` pairs each stage's counted DRAM bytes and median time (by events) with the FLOPs and
bytes of the cost model and with the roofline's bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mla_var3.evidence import Passed, Record, Stage
from mla_var3.roofline import Prediction
from mla_var3.runtime import costs
from mla_var3.tables import csv_text
from mla_var3.workloads import Cost

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"


@dataclass(frozen=True)
class Counter:
    """A counter as people read it.

    Attributes:
        title: What it counts.
        unit: Unit of the shown value; empty for counts.
        scale: Factor from the record's value to the shown one.
    """

    title: str
    unit: str = ""
    scale: float = 1.0


#: The counters that are shown, by Nsight Compute's names, in this order.
COUNTERS = {
    READ: Counter("DRAM bytes read", "MB", 1e-6),
    WRITTEN: Counter("DRAM bytes written", "MB", 1e-6),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": Counter("DRAM throughput", "%"),
    "lts__t_sector_hit_rate.pct": Counter("L2 hit rate", "%"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": Counter("SM throughput", "%"),
    "sm__inst_executed_pipe_tensor.sum": Counter("tensor instructions of warps"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": Counter(
        "tensor pipe active", "%"
    ),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": Counter("issue slots used", "%"),
    "smsp__inst_executed.sum": Counter("instructions of warps"),
    "smsp__warps_eligible.avg.per_cycle_active": Counter("eligible warps per scheduler"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": Counter("warps resident", "%"),
    "launch__registers_per_thread": Counter("registers per thread"),
    "launch__waves_per_multiprocessor": Counter("waves per SM"),
}


def formatted(counters: Mapping[str, float]) -> dict[str, str]:
    """The counters that are shown, as ``title (unit)`` to text of four digits."""
    return {
        f"{shown.title} ({shown.unit})" if shown.unit else shown.title:
            _four(counters[name] * shown.scale)
        for name, shown in COUNTERS.items()
        if name in counters
    }  # fmt: skip


def _four(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def columns(of: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[list[str]]]:
    """A header and a row per shown counter with a column per stage; no rows where none is."""
    shown = {stage: formatted(counters) for stage, counters in of.items()}
    titles = dict.fromkeys(title for found in shown.values() for title in found)
    rows = [[title, *(found.get(title, "") for found in shown.values())] for title in titles]
    return ["counter", *shown], rows


@dataclass(frozen=True)
class Place:
    """Where a timed stage stands under the roofs of its device, by the model and as counted.

    Attributes:
        stage: The stage.
        work: Its cost by the model; None where the version does not tell.
        bound: What no kernel can beat; None where the device's figures are not known.
    """

    stage: Stage
    work: Cost | None
    bound: Prediction | None

    @property
    def dram_bytes(self) -> float | None:
        """DRAM bytes that the hardware counted; None where it was not asked."""
        counters = self.stage.counters
        return counters[READ] + counters[WRITTEN] if {READ, WRITTEN} <= counters.keys() else None

    @property
    def median_us(self) -> float:
        """Median time, by events: a profiler's own would hold its overhead."""
        assert self.stage.duration is not None
        return self.stage.duration.median_us

    @property
    def figures(self) -> dict[str, float | str | None]:
        """All figures by column of a table; None for what is not known."""
        work, least, counted = self.work, self.bound, self.dram_bytes
        return {
            "stage": self.stage.name,
            "flops": work.flops if work else None,
            "model_bytes": work.bytes if work else None,
            "counted_bytes": counted,
            "model_flop_per_byte": work.flops / work.bytes if work and work.bytes else None,
            "counted_flop_per_byte": work.flops / counted if work and counted else None,
            "ridge_flop_per_byte": least.ridge if least else None,
            "tflops": work.flops / self.median_us * 1e-6 if work else None,
            "counted_gbps": counted / self.median_us * 1e-3 if counted is not None else None,
            "median_us": self.median_us,
            "bound_us": least.time_us if least else None,
            "bound_by": least.bound if least else None,
            "times_the_bound": self.median_us / least.time_us if least else None,
        }


def places(record: Record) -> list[Place]:
    """The timed stages of a record that a profiler counted DRAM bytes of."""
    stages = record.outcome.stages if isinstance(record.outcome, Passed) else []
    found = (
        Place(x, costs.cost(record, x), costs.bound(record, x))
        for x in stages
        if x.duration is not None
    )
    return [place for place in found if place.dram_bytes is not None]


def roofline_csv(found: Sequence[Place]) -> str:
    """The stages beside the roofline as CSV; empty without any."""
    rows = [place.figures for place in found]
    if not rows:
        return ""
    return csv_text(list(rows[0]), [["" if x is None else x for x in r.values()] for r in rows])
