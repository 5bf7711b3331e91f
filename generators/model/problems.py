"""Runs grouped by problem, and the figures that tables show of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mla_var3 import devices, roofline
from mla_var3.devices import Ceilings, Device
from mla_var3.devices.units import MEASURED_PREFIX
from mla_var3.errors import DeviceFigureError, UnknownNameError
from mla_var3.evidence import CPU, Duration, Record, Scalar
from mla_var3.evidence.model import STATIC
from mla_var3.knowledge import metrics
from mla_var3.knowledge.evidence import Link, change_text
from mla_var3.runtime import registry
from mla_var3.tables import cell
from mla_var3.workloads import workloads

if TYPE_CHECKING:
    from generators.model.run import Run


@dataclass(frozen=True)
class Problem:
    """What designs of one workload are compared at.

    Attributes:
        layer: Key of the workload.
        axes: The axes that must be equal, in the workload's order.
    """

    layer: str
    axes: tuple[tuple[str, Scalar], ...]

    def __str__(self) -> str:
        return shown(dict(self.axes))

    @property
    def regime(self) -> str:
        """The regime of the workload; empty where it has none."""
        workload = workloads().get(self.layer)
        return (workload.regime(dict(self.axes)) if workload else None) or ""

    @property
    def dtype(self) -> str:
        """Element type."""
        return str(dict(self.axes).get("dtype", "bf16"))

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: by workload, then by axis."""
        return self.layer, tuple((v is not None, str(type(v)), v) for _, v in self.axes)


def compared(layer: str, problem: Mapping[str, Scalar]) -> tuple[str, ...]:
    """The axes in which designs of a workload must agree; all where the workload is not known."""
    workload = workloads().get(layer)
    return workload.compared if workload else tuple(problem)


def problem_of(record: Record) -> Problem:
    """The problem of a record, without what only one design has."""
    names = compared(record.kernel.layer, record.problem)
    return Problem(record.kernel.layer, tuple((name, record.problem.get(name)) for name in names))


def by_problem(runs: Iterable[Run]) -> dict[Problem, list[Run]]:
    """Runs of each problem, problems in order."""
    grouped: dict[Problem, list[Run]] = {}
    for run in runs:
        grouped.setdefault(problem_of(run.record), []).append(run)
    return dict(sorted(grouped.items(), key=lambda item: item[0].order))


def by_layer(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs of each workload, by its key: two workloads never share a table of times."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.record.kernel.layer, []).append(run)
    return dict(sorted(grouped.items()))


def layer_title(layer: str) -> str:
    """A workload in prose."""
    workload = workloads().get(layer)
    return workload.title if workload else layer


def shown(axes: Mapping[str, Scalar]) -> str:
    """Axes as people read them: ``b=32 t=4096 bf16 causal``; what is off or open is left out."""
    numbers = [f"{name}={value:g}" for name, value in axes.items() if _is_number(value)]
    words = [value for value in axes.values() if isinstance(value, str)]
    flags = [name for name, value in axes.items() if value is True]
    return " ".join([*numbers, *words, *flags])


def _is_number(value: Scalar) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def sizes(record: Record, names: Iterable[str]) -> str:
    """The named axes of a record's problem."""
    wanted = set(names)
    return shown({name: v for name, v in record.problem.items() if name in wanted})


def varying(made: Iterable[Record]) -> list[str]:
    """Axes in which the problems of records differ."""
    made = list(made)
    names = dict.fromkeys(name for record in made for name in record.problem)
    return [name for name in names if len({record.problem.get(name) for record in made}) > 1]


def varying_shared(made: Sequence[Record]) -> list[str]:
    """The axes, of those that designs of a workload share, in which problems differ."""
    shared = compared(made[0].kernel.layer, made[0].problem) if made else ()
    return [name for name in varying(made) if name in shared]


def constant(made: Sequence[Record]) -> list[str]:
    """Axes in which the problems of records agree."""
    differing = varying(made)
    return [name for name in made[0].problem if name not in differing] if made else []


def open_axes(runs: Iterable[Run]) -> dict[tuple[str, str], list[str]]:
    """Axes that a design sets for itself, by workload and design: those that vary, uncompared."""
    designs: dict[tuple[str, str], list[Record]] = {}
    for run in runs:
        kernel = run.record.kernel
        designs.setdefault((kernel.layer, kernel.design), []).append(run.record)
    return {
        key: [name for name in varying(made) if name not in compared(key[0], made[0].problem)]
        for key, made in designs.items()
    }


def own_sizes(run: Run, axes: Mapping[tuple[str, str], list[str]]) -> str:
    """What the design of a run set for itself, ``axes`` being those of ``open_axes``."""
    kernel = run.record.kernel
    return sizes(run.record, axes.get((kernel.layer, kernel.design), ()))


def problem_text(record: Record) -> str:
    """The whole problem of a record, the axes that designs share first."""
    names = compared(record.kernel.layer, record.problem)
    rest = {name: v for name, v in record.problem.items() if name not in names}
    return f"{problem_of(record)} {shown(rest)}".strip()


def design_of(record: Record) -> str:
    """The design as users type it: with its language where another one is preferred."""
    kernel = record.kernel
    try:
        known = kernel.language == registry.preferred(kernel.design)
    except UnknownNameError:
        return kernel.design
    return kernel.design if known else f"{kernel.design}@{kernel.language}"


def target_name(target: str) -> str:
    """A record's target in prose: the device's name, the arch, or the CPU."""
    if target == CPU:
        return "CPU"
    device = None if target.startswith(STATIC) else device_of(target)
    return device.name if device else target.removeprefix(STATIC)


def device_of(target: str) -> Device | None:
    """The device of a record's target, or the one that stands for its arch; None without one."""
    try:
        if target.startswith(STATIC):
            return devices.default_for_arch(target.removeprefix(STATIC))
        return devices.load(target)
    except UnknownNameError:
        return None


def roofs(target: str, dtype: str) -> tuple[Ceilings, Ceilings] | None:
    """Bound and reference rates of a target's device; None where one is not known."""
    device = device_of(target)
    try:
        return (device.bound(dtype), device.ceilings(dtype)) if device else None
    except (DeviceFigureError, UnknownNameError):  # An element type may have no rate.
        return None


def amount(metric: str, value: float | int | str | bool) -> str:
    """A value of the metrics catalogue with its unit."""
    return cell(metrics.metric(metric).text(value))


def worst(run: Run, metric: str) -> float | None:
    """The largest value of a metric over the stages of a run; None where none states it."""
    found = [r.value for r in metrics.readings_of(run.record, metrics.metric(metric))]
    return max((float(value) for value in found if not isinstance(value, str)), default=None)


def duration(time: Duration | None) -> str:
    """Median of a time."""
    return amount("total_us", time.median_us) if time else ""


def rate(run: Run, work: str) -> str:
    """FLOPs or bytes of a timed run per second, ``work`` being ``flops`` or ``bytes``."""
    outcome = run.outcome
    if outcome is None or outcome.total is None:
        return ""
    per_us = getattr(outcome, work) / outcome.total.median_us
    if work == "flops":
        return amount("achieved_tflops", per_us / 1e6)
    return amount("achieved_gbps", per_us / 1e3)


def fraction(run: Run) -> str:
    """Share of the bound that a timed run reached."""
    share = roofline.fraction(run.record)
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


def record_link(run: Run, link: Link, text: str = "record") -> str:
    """A link to a record, which says so when the record is stale."""
    return f"[{text}]({link(run.name)})" + (" (stale)" if run.stale else "")


def ratio(before: float, after: float) -> str:
    """How two times of one run compare, as people read it: ``1.8x faster``, ``2.1x slower``."""
    return change_text(metrics.metric("total_us"), before / after)


def against(mine: Run, other: Run, name: str) -> str:
    """How a run compares with another of the same run: ``5 % faster than FlashMLA (70.9 us ..)``.

    Args:
        mine: The run that the sentence is about.
        other: What it is compared with.
        name: The other, as the sentence calls it.
    """
    ours, theirs = mine.total.median_us, other.total.median_us
    both = f"({duration(mine.total).removesuffix(' us')} against {duration(other.total)})"
    if level(ours, theirs):
        return f"as fast as {name} {both}"
    return f"{percent(ours, theirs)} than {name} {both}"


def percent(ours: float, theirs: float) -> str:
    """A time against another in percent, or as a factor where that is large."""
    word, factor = ("faster", theirs / ours) if ours < theirs else ("slower", ours / theirs)
    if factor >= PERCENT_BELOW:
        return ratio(theirs, ours)
    share = f"{abs(1 - ours / theirs) * 100:.0f}"
    return "equal" if share == "0" else f"{share} % {word}"


#: From this factor on people say how many times rather than percent.
PERCENT_BELOW = 1.5


def fastest(runs: Iterable[Run]) -> list[Run]:
    """Timed runs, fastest first; of runs of one version, mode and path the order is that of files.

    Fresh records come before stale ones.
    """
    timed = (run for run in runs if run.is_timed)
    return sorted(timed, key=lambda run: (run.stale, run.total.median_us, run.name))


def with_all_work(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs that are spared nothing, as by a prefix that sequences share; all if none is."""
    return [
        run for run in runs if not workloads()[run.record.kernel.layer].lighter(run.record.problem)
    ] or runs


#: Times that differ by less count as equal: the same kernel moves by as much.
NOISE = 0.03


@dataclass(frozen=True)
class Best:
    """What to use of several runs.

    Attributes:
        run: The fastest; of versions of its design within noise of it the newest.
        rival: A run within noise that is faster, or of another design.
        outdated: The fastest stale run where it beats ``run``, a fresh one, beyond noise.
    """

    run: Run
    rival: Run | None
    outdated: Run | None = None

    @property
    def us(self) -> float:
        """Microseconds of the run."""
        return self.run.total.median_us


def best(runs: Sequence[Run]) -> Best:
    """What to use of timed runs of one problem, fastest first and at least one.

    Times of different runs differ by clock and temperature. So the newest run that timed several
    of them decides, with what was timed after it; without one the shortest time does.
    """
    together = _newest_together(runs)
    near = [run for run in together if run.stale == together[0].stale and alike(run, together[0])]
    own = [run for run in near if _kernel(run)[0] == _kernel(together[0])[0]]
    chosen = max(own, key=lambda run: _kernel(run)[1])
    faster = near[: near.index(chosen)]
    others = (run for run in near if run in faster or _kernel(run)[0] != _kernel(chosen)[0])
    return Best(chosen, next(others, None), _outdated(runs, chosen))


def _newest_together(runs: Sequence[Run]) -> Sequence[Run]:
    """The newest run that timed several and what came after it, fastest first; else all."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.record.run and run.stale == runs[0].stale:
            groups.setdefault(run.record.run, []).append(run)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return runs
    newest = max(several, key=lambda group: group[0].record.time)
    since = min(run.record.time for run in newest)
    return [run for run in runs if run.record.time >= since and run.stale == runs[0].stale]


def _outdated(runs: Sequence[Run], chosen: Run) -> Run | None:
    stale = (run for run in runs if run.stale and not chosen.stale)
    first = min(stale, key=lambda run: run.total.median_us, default=None)
    if first is None or first.total.median_us > chosen.total.median_us or alike(first, chosen):
        return None
    return first


def _kernel(run: Run) -> tuple[tuple[str, str], int]:
    """Language and design, and number of the version."""
    kernel = run.record.kernel
    return (kernel.language, kernel.design), int(kernel.version.removeprefix("v"))


def alike(one: Run, other: Run) -> bool:
    """Whether medians are within noise, or each in the range of the other's samples."""
    first, second = one.total, other.total
    return level(first.median_us, second.median_us) or (
        first.min_us <= second.median_us <= first.max_us
        and second.min_us <= first.median_us <= second.max_us
    )


def level(one: float, other: float) -> bool:
    """Whether two times differ by less than noise."""
    return max(one, other) < min(one, other) * (1 + NOISE)
