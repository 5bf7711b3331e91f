"""Step 0 of a campaign: computes ceilings and target times from sourced device figures and work.

Every figure of hardware names the line of the device file that states it; a number without one is
refused, whoever typed it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3 import inputs, roofline
from mla_var3.devices import DEVICE_DIR, Device, find
from mla_var3.devices.ceilings import Power
from mla_var3.devices.model import UNKNOWN, Figure, bound_metrics
from mla_var3.devices.units import MEASURED_PREFIX
from mla_var3.errors import DeviceFigureError, InputError, UnknownNameError
from mla_var3.roofline.prediction import Prediction
from mla_var3.tables import axes, microseconds
from mla_var3.workloads import Cost

FOLDER = "knowledge/devices"
#: Share of the rate that the tightest ceiling allows, which a campaign aims at.
TARGET = 0.9
#: What every campaign states of its device, beside the throughput of its element type.
STATED = (
    "dram_bandwidth", "sm_count", "l2_size", "shared_memory_per_sm", "shared_memory_per_block_max",
    "registers_per_sm", "boost_clock", "tdp",
)  # fmt: skip
#: What the ceiling of power takes.
ENERGY = ("static_power", "energy_per_flop", "energy_per_byte")
_FIGURE = re.compile(r"^\s*(?:[-*] )?`?([a-z][a-z0-9_]*): (.+?) <- (\S+?):(\d+)`?\s*$")
#: A line of figures that names no source.
_BARE = re.compile(r"^\s*[-*] `([a-z][a-z0-9_]*): (?!.*<-)[^`]*`\s*$")
#: What a figure of hardware looks like: a number with one of its units, in signs or in words.
_TYPED = re.compile(
    r"(?<![\w.])\d[\d,.]*(?:e[+-]?\d+)?[\s-]?"
    r"(?i:[gtp]?flops|[gtp]ops|(?:giga|tera|peta)flops"
    r"|(?:[gtp]flop|(?:[kmgt]i?)?b(?:ytes?|its?)?|(?:mega|giga|tera)b(?:ytes?|its?))"
    r"(?:/ ?s(?:ec(?:onds?)?)?|ps| (?:per|a) second)"
    r"|[kmg]i?b (?:of )?(?:l2|hbm\w*|dram|vram)|[kmg]hz|(?:mega|giga)hertz|(?:kilo)?watts?"
    r"|picojoules?)(?!\w)"
    r"|(?<![\w.])\d[\d,.]*\s?(?:k?W|[np]J)(?!\w)"
)
#: The line that Step 0 works out itself, which states no hardware; READMEs of old say "least".
_WORKED_OUT = re.compile(r"^The (?:tightest|least) ceiling is .* us\.$")
#: What a ceiling holds for, where that is not every run.
_WHEN = {"power": ", back to back; runs with pauses between them draw less on average"}
_NAMES: dict[str, str] = {"compute": "tensor", "memory": "DRAM", "power": "power"}


@dataclass(frozen=True)
class Sourced:
    """A figure of a device with the line that states it.

    Attributes:
        metric: What is stated.
        figure: The figure; None where the file does not speak of the metric.
        file: Path from the top of the checkout.
        line: 1-based; the first line where the file does not speak of it.
    """

    metric: str
    figure: Figure | None
    file: str
    line: int

    @property
    def is_known(self) -> bool:
        """Whether a value is stated."""
        return self.figure is not None and self.figure.is_number

    def __str__(self) -> str:
        value = UNKNOWN
        if self.figure is not None and self.figure.is_number:
            value = f"{self.figure.value} {self.figure.unit}"
        elif self.figure is not None:
            value = str(self.figure.value)
        return f"{self.metric}: {value} <- {self.file}:{self.line}"


@dataclass(frozen=True)
class Work:
    """What is to be worked: FLOPs and bytes, and who says so.

    Attributes:
        name: The version or file.
        problem: Its sizes.
        dtype: Element type of its operands.
        cost: FLOPs and bytes.
        source: Where they come from.
    """

    name: str
    problem: dict[str, object]
    dtype: str
    cost: Cost
    source: str

    def __str__(self) -> str:
        at = axes(self.problem)
        return (
            f"Work{f' at {at}' if at else ''} ({self.dtype}): {self.cost.flops:,} FLOP, "
            f"{self.cost.bytes:,} bytes, by {self.source}"
        )


@dataclass(frozen=True)
class StepZero:
    """Device, work, ceilings and targets.

    Attributes:
        device: The device.
        work: The work.
        figures: Every figure that is used or asked for.
        accepted: Metrics that may stay UNKNOWN.
        predicted: The times of the work at the bound rates.
    """

    device: Device
    work: Work
    figures: tuple[Sourced, ...]
    accepted: tuple[str, ...]
    predicted: Prediction

    @property
    def target_us(self) -> float:
        """Time at which the targets are reached."""
        return self.predicted.time_us / TARGET

    def goal(self) -> str:
        """What a campaign is to reach."""
        return f"Reach {microseconds(self.target_us)} us, the target of Step 0."

    def ceilings(self) -> list[tuple[str, float]]:
        """Microseconds by ceiling, the longest first; one that no figure gives is left out."""
        times = {
            "tensor": self.predicted.compute_us, "DRAM": self.predicted.memory_us,
            "power": self.predicted.power_us,
        }  # fmt: skip
        known = [(name, us) for name, us in times.items() if us > 0]
        return sorted(known, key=lambda pair: -pair[1])

    def lines(self) -> list[str]:
        """All of it as lines of text."""
        work, found = self.work.cost, self.predicted
        tightest, us = self.ceilings()[0]
        lines = [
            f"# Step 0: {self.work.name} on {self.device.name}",
            "",
            f"{self.work}.",
            "",
            "## Figures",
            "",
            *(f"- `{figure}`" for figure in self.figures),
            "",
            "## Ceilings",
            "",
            *(
                f"- {name}: {microseconds(time)} us at the least{_WHEN.get(name, '')}"
                for name, time in self.ceilings()
            ),
        ]
        if found.rates.power is None:
            lines.append(f"- power: UNKNOWN for {self.work.dtype}")
        rates = [
            f"{work.flops / self.target_us / 1e6:,.1f} TFLOP per second" if work.flops else "",
            f"{work.bytes / self.target_us / 1e3:,.1f} GB per second",
        ]
        return [
            *lines, "", "## Targets", "",
            f"The tightest ceiling is {tightest}, {microseconds(us)} us. "
            f"The target is {TARGET:.0%} of its rate ({', '.join(filter(None, rates))}): "
            f"{microseconds(self.target_us)} us.",
        ]  # fmt: skip

    def text(self) -> str:
        """All of it as Markdown."""
        return "\n".join(self.lines()) + "\n"

    def data(self) -> dict[str, object]:
        """All of it for programs."""
        return {
            "device": self.device.key,
            "name": self.work.name,
            "problem": dict(self.work.problem),
            "flops": self.work.cost.flops,
            "bytes": self.work.cost.bytes,
            "source": self.work.source,
            "figures": [str(figure) for figure in self.figures],
            "ceilings_us": {name: round(us, 4) for name, us in self.ceilings()},
            "least_ceiling": self.ceilings()[0][0],
            "target_us": round(self.target_us, 4),
        }


def figures_of(dtype: str) -> tuple[str, ...]:
    """The metrics of a device that Step 0 of work in an element type names."""
    return (*bound_metrics(dtype), *STATED, *ENERGY)


def step_zero(work: Work, device: Device, accepted: Sequence[str] = ()) -> StepZero:
    """Step 0 of some work on a device.

    Args:
        work: The work.
        device: The device.
        accepted: Metrics that may stay UNKNOWN.

    Raises:
        DeviceFigureError: A figure is UNKNOWN and was not accepted; asks for it by name.
        UnknownNameError: Something else was accepted.
    """
    names = figures_of(work.dtype)
    for name in accepted:
        if name not in names:
            raise UnknownNameError("figure to accept", name, list(names))
    figures = tuple(sourced(device, name) for name in names)
    missing = [f for f in figures if not f.is_known and f.metric not in accepted]
    if missing:
        asked = ", ".join(figure.metric for figure in missing)
        raise DeviceFigureError(
            f"{asked} of {device.name} {'is' if len(missing) == 1 else 'are'} UNKNOWN "
            f"({missing[0].file}:{missing[0].line}): do you know a source? State it there, or go "
            f"on without: --accept={','.join(figure.metric for figure in missing)}"
        )
    needed = {figures[0].metric, "dram_bandwidth"} & {f.metric for f in figures if not f.is_known}
    if needed:
        raise DeviceFigureError(
            f"{' and '.join(sorted(needed))} of {device.name} can be accepted and not done "
            "without: no ceiling follows from it"
        )
    # Rates that no kernel beats; joules as kernels were measured to draw them, under the board's
    # power: the least that any ever drew would let arithmetic run at a clock that no board holds.
    rates = dataclasses.replace(device.bound(work.dtype), power=_power(device, work.dtype))
    predicted = roofline.predict(work.cost.flops, work.cost.bytes, rates, device.key)
    return StepZero(device, work, figures, tuple(accepted), predicted)


def _power(device: Device, dtype: str) -> Power | None:
    try:
        return device.ceilings(dtype).power
    except DeviceFigureError:
        return None


def sourced(device: Device, metric: str) -> Sourced:
    """The figure of a metric that the ceilings take, with its line: of rates the largest."""
    own = [
        f for f in device.figures
        if f.metric in (metric, MEASURED_PREFIX + metric) and f.is_number and not f.is_sparse
    ]  # fmt: skip
    stated = [f for f in device.figures if f.metric == metric]
    figure: Figure | None
    if own and metric in ENERGY:
        figure = device.figure(MEASURED_PREFIX + metric)
    elif own and (metric in ("dram_bandwidth", "fp32_vector") or metric.startswith("tensor")):
        figure = max(own, key=lambda f: f.normalised)
    else:
        figure = device.figure(metric) if own else next(iter(stated), None)
    path = f"{FOLDER}/{device.key}.toml"
    text = _file(path).read_text(encoding="utf-8")
    return Sourced(metric, figure, path, _line(text, device, figure))


def _file(path: str) -> Path:
    """The device file of a path that texts state: these lie with the sources, not with results."""
    return DEVICE_DIR / Path(path).name


def _line(text: str, device: Device, figure: Figure | None) -> int:
    """Line of a figure's table in the device's file."""
    if figure is None:
        return 1
    place = next(i for i, each in enumerate(device.figures) if each is figure)
    starts = [n for n, line in enumerate(text.splitlines(), 1) if line.strip() == "[[figure]]"]
    return starts[place]


# -- figures in texts ------------------------------------------------------------------------------


def faults(text: str, name: str) -> list[str]:
    """What is wrong with the figures of a text, a sentence each.

    A line with a source has to say what the device file says there; a number with a unit of
    hardware elsewhere has no source.

    Args:
        text: Such as the README of a campaign.
        name: What messages call it.
    """
    return list(_faults(text.splitlines(), name))


def _faults(lines: Sequence[str], name: str) -> Iterable[str]:
    known: dict[str, dict[int, Callable[[], Figure]]] = {}
    for number, line in enumerate(lines, 1):
        if (found := _FIGURE.match(line)) is not None:
            metric, value, file, at = found.groups()
            if said := _disagrees(metric, value, file, int(at), known):
                yield f"{name}:{number}: {metric} {said}"
        elif _WORKED_OUT.match(line):
            continue
        elif told := (bare[1] if (bare := _BARE.match(line)) else typed(line)):
            yield (
                f"{name}:{number}: {told!r} names no source; a figure of hardware is written "
                f"`metric: value unit <- {FOLDER}/<file>:<line>`"
            )


def typed(text: str) -> str:
    """The first figure of hardware that a text types; empty where it types none."""
    found = _TYPED.search(text)
    return found[0] if found is not None else ""


def _disagrees(
    metric: str, value: str, file: str, at: int, known: dict[str, dict[int, Callable[[], Figure]]]
) -> str:
    """Why a sourced figure is not what its line states; empty when it is."""
    if Path(file).parent.as_posix() != FOLDER or not file.endswith(".toml"):
        return f"names {file}, which is not a file of {FOLDER}"
    try:
        device = find(Path(file).stem)
    except UnknownNameError:
        return f"names {file}, which does not exist"
    if file not in known:
        text = _file(file).read_text(encoding="utf-8")
        known[file] = {
            _line(text, device, figure): (lambda figure=figure: figure)  # type: ignore[misc]
            for figure in device.figures
        }
    if at not in known[file]:
        return "" if value == UNKNOWN and at == 1 else f"names {file}:{at}, where no figure begins"
    figure = known[file][at]()
    if figure.metric not in (metric, MEASURED_PREFIX + metric):
        return f"names {file}:{at}, which states {figure.metric}"
    own = f"{figure.value} {figure.unit}".strip()
    return "" if value == own else f"is {value!r} here and {own!r} at {file}:{at}"


def require_sourced(path: Path, name: str | None = None) -> None:
    """Refuse a text whose figures have no source, or another value than it.

    Raises:
        InputError: The first fault.
    """
    try:
        found = faults(inputs.read_text(path), name or path.name)
    except InputError as error:
        raise InputError(name or path.name, error.reason) from error
    if found:
        place, _, said = found[0].partition(": ")
        raise InputError(f"{place}:", said)
