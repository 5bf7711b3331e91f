"""Runs grouped by problem, and the figures that tables show of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generators.text import cell, chosen
from mla_var3 import devices
from mla_var3.devices import Device
from mla_var3.errors import UnknownNameError
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.metrics import METRICS, readings_of, regime_of
from mla_var3.records import Duration, Record

if TYPE_CHECKING:
    from generators.site import Run

#: Sizes that all designs share: at equal ones their times belong side by side.
SHARED = ("b", "h", "s", "t")


@dataclass(frozen=True, order=True)
class Problem:
    """What designs are compared at.

    Attributes:
        sizes: b, h, s and t.
        dtype: Element type.
        causal: Whether the causal mask is on.
    """

    sizes: tuple[int, ...]
    dtype: str
    causal: bool

    def __str__(self) -> str:
        pairs = " ".join(
            f"{name}={size}" for name, size in zip(SHARED, self.sizes, strict=True) if size
        )
        return f"{pairs} {self.dtype}" + (" causal" if self.causal else "")

    @property
    def regime(self) -> str:
        """Decode, speculative or prefill."""
        return regime_of(self.sizes[SHARED.index("s")])


def problem_of(record: Record) -> Problem:
    """The problem of a record, without what only one design has."""
    sizes = tuple(int(record.problem.get(name) or 0) for name in SHARED)
    return Problem(sizes, str(record.problem.get("dtype")), bool(record.problem.get("causal")))


def by_problem(runs: Iterable[Run]) -> dict[Problem, list[Run]]:
    """Runs of each problem, problems in order."""
    grouped: dict[Problem, list[Run]] = {}
    for run in runs:
        grouped.setdefault(problem_of(run.record), []).append(run)
    return dict(sorted(grouped.items()))


#: Sizes of all designs, in the order in which they are read.
SIZES = ("b", "h", "s", "t", "d", "k", "p", "n", "dtype")


def sizes(record: Record, names: Iterable[str] = SIZES) -> str:
    """The named sizes of a record's problem, as flags have them; of the mask only that it is on."""
    names = tuple(names)
    wanted = [name for name in names if name != "causal"]
    mask = "causal" if record.problem.get("causal") and "causal" in names else ""
    return f"{chosen(record.problem, wanted)} {mask}".strip()


def problem_text(record: Record) -> str:
    """The problem of a record, with the number of new tokens where there is one."""
    new_tokens = record.problem.get("n")
    return str(problem_of(record)) + (f" n={new_tokens}" if new_tokens is not None else "")


def varying(made: Iterable[Record]) -> list[str]:
    """Sizes in which the problems of records differ."""
    values: dict[str, set[object]] = {}
    for record in made:
        for name in (*SIZES, "causal"):
            values.setdefault(name, set()).add(record.problem.get(name))
    return [name for name, found in values.items() if len(found) > 1]


def target_name(target: str) -> str:
    """A record's target in prose: the device's name, the arch, or the interpreter."""
    try:
        return devices.load(target).name
    except UnknownNameError:
        return target.removeprefix("static/")


def amount(metric: str, value: float | int | str | bool) -> str:
    """A value of the metrics catalogue with its unit."""
    return cell(METRICS[metric].text(value))


def worst(run: Run, metric: str) -> float | None:
    """The largest value of a metric over the stages of a run; None where none states it."""
    found = [r.value for r in readings_of(run.record, METRICS[metric])]
    return max((float(value) for value in found if not isinstance(value, str)), default=None)


def duration(time: Duration | None) -> str:
    """Median of a time."""
    return amount("total_us", time.median_us) if time else ""


def rate(run: Run, work: str) -> str:
    """FLOPs or bytes of a timed run a second, ``work`` being ``flops`` or ``bytes``."""
    outcome = run.outcome
    if outcome is None or outcome.total is None:
        return ""
    per_us = getattr(outcome, work) / outcome.total.median_us
    if work == "flops":
        return amount("achieved_tflops", per_us / 1e6)
    return amount("achieved_gbps", per_us / 1e3)


def fraction(run: Run) -> str:
    """Share of the roofline that a timed run reached."""
    outcome = run.outcome
    share = outcome.roofline_fraction if outcome else None
    return "" if share is None else f"{share:.0%}"


#: Heading of bytes over time: they are no measured traffic.
LEAST_BYTES = "Least bytes over time"
#: What the two rates are.
RATES = (
    "Arithmetic and least bytes are the cost model's FLOPs and bytes, over the measured time; the "
    "traffic that the hardware counts is in records of mode ncu only."
)


def above_ceiling(runs: Iterable[Run], link: Link) -> str:
    """Why runs reach more than their roofline, once for each ceiling; empty where none does."""
    known = {device.key: device for device in devices.all_devices()}
    said: dict[str, None] = {}
    for run in runs:
        outcome, device = run.outcome, known.get(run.record.target)
        if outcome is None or device is None or round(outcome.roofline_fraction or 0, 2) <= 1:
            continue
        floor = next((p for p in outcome.predictions if p.device == device.key), None)
        if floor is not None:
            said[_ceiling(device, problem_of(run.record).dtype, floor.bound, link)] = None
    return "\n\n".join(said)


def _ceiling(device: Device, dtype: str, bound: str, link: Link) -> str:
    compute, memory = device.ceilings(dtype).sources
    source = memory if bound == "memory" else compute
    reasons = [used.reason for used in device.used if source.startswith(f"{used.metric} ")]
    page = f"[{cell(device.name)}]({link(f'knowledge/devices/{device.key}.toml')})"
    return (
        "Some runs reach more than the whole of their roofline, whose ceiling is one figure of "
        f"{page} among several: {cell(source)}."
        + "".join(f" Why this one: {cell(reason)}." for reason in reasons)
    )


def record_link(run: Run, link: Link, text: str = "record") -> str:
    """A link to a record, which says so when the record is stale."""
    return f"[{text}]({link(run.name)})" + (" (stale)" if run.stale else "")


def fastest(runs: Iterable[Run]) -> list[Run]:
    """Timed runs, fastest first; of runs of one version, mode and path the order is that of files.

    Fresh records come before stale ones.
    """
    timed = (run for run in runs if run.is_timed)
    return sorted(timed, key=lambda run: (run.stale, run.total.median_us, run.name))
