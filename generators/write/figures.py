"""Writes numbers of records as readable text: times, rates, shares of a bound, record links."""

from __future__ import annotations

import re

from generators.model.columns import known_as
from generators.model.run import Run
from mla_var3.devices import Ceilings
from mla_var3.devices.units import MEASURED_PREFIX
from mla_var3.errors import UnknownNameError
from mla_var3.evidence import Duration, Record
from mla_var3.knowledge import metrics
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime import costs, registry
from mla_var3.tables import cell
from mla_var3.workloads import workloads


def amount(metric: str, value: float | int | str | bool) -> str:
    """A value of the metrics catalogue with its unit."""
    return cell(metrics.metric(metric).text(value))


def duration(time: Duration | None) -> str:
    """Median of a time."""
    return amount("total_us", time.median_us) if time else ""


def rate(run: Run, work: str) -> str:
    """FLOPs or bytes of a timed run per second, ``work`` being ``flops`` or ``bytes``."""
    outcome, cost = run.outcome, run.work
    if outcome is None or outcome.total is None or cost is None:
        return ""
    per_us = getattr(cost, work) / outcome.total.median_us
    if work == "flops":
        return amount("achieved_tflops", per_us / 1e6)
    return amount("achieved_gbps", per_us / 1e3)


def fraction(run: Run) -> str:
    """Share of the bound that a timed run reached."""
    share = costs.fraction(run.record)
    return "" if share is None else f"{share:.0%}"


#: Heading of ``fraction``.
OF_BOUND = "Of the bound"
#: Heading of bytes over time: they are not measured traffic.
LEAST_BYTES = "Least bytes over time"
#: What the two rates are.
RATES = (
    "Arithmetic and least bytes are the cost model's FLOPs and bytes, over the measured time; the "
    "traffic that the hardware counts is in records of mode ncu only. The bound is what the same "
    "work takes at the largest rates and power that anybody states or ever measured on the device: "
    "no kernel can beat it."
)
_SOURCE = re.compile(r"\S+ (?P<value>\S+ \S+?)(?: \((?P<condition>.*)\))?: ")


def reference_rates(rates: Ceilings) -> str:
    """The rates of a reference time, each named after what attained it, or as published."""
    parts = []
    for source in rates.sources:
        found = _SOURCE.match(source)
        assert found is not None, source
        said = "" if source.startswith(MEASURED_PREFIX) else "as published, "
        parts.append(f"{found['value']} ({said}{found['condition'] or 'no condition stated'})")
    said = " and ".join(parts) or f"{rates.tflops:g} TFLOP/s and {rates.gbps:g} GB/s"
    if (power := rates.power) is not None:
        said += (
            f", within {power.watts:g} W at {power.static:g} W, "
            f"{power.joules_per_flop * 1e12:.3g} pJ per FLOP and "
            f"{power.joules_per_byte * 1e12:.3g} pJ per byte, as fitted to records"
        )
    return cell(said)


def layer_title(layer: str) -> str:
    """A workload in prose."""
    workload = workloads().get(layer)
    return workload.title if workload else layer


def called(record: Record) -> str:
    """The design as people call it: a library's kernel by the library's name."""
    return known_as(record.kernel.layer, record.kernel.design, design_of(record))


def design_of(record: Record) -> str:
    """The design as users type it: with its language where another one is preferred."""
    kernel = record.kernel
    try:
        known = kernel.language == registry.preferred(kernel.design)
    except UnknownNameError:
        return kernel.design
    return kernel.design if known else f"{kernel.design}@{kernel.language}"


def record_link(run: Run, link: Link, text: str = "record") -> str:
    """A link to a record, which says so when the record is stale."""
    return f"[{text}]({link(run.name)})" + (" (stale)" if run.stale else "")
