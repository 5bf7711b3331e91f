"""Makes a device page's section on energy: joules by the power model beside measured ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write import figures
from generators.write.text import cell, fold, sections, table
from mla_var3.devices import Device, Power
from mla_var3.errors import DeviceFigureError
from mla_var3.knowledge.evidence import Link
from mla_var3.profiling.report import SIDES
from mla_var3.roofline import Prediction
from mla_var3.roofline.energy import Window, windows
from mla_var3.runtime import costs

#: Element type whose joules were measured.
DTYPE = "bf16"
_HEAD = (
    "Version", "Record", "W", "SM clock", "Joules", "By the model", "Off", "us", "Reference us",
    "Set by",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A measured window and the power that the model gives for it.

    Attributes:
        run: Its record and where it lies.
        window: What was measured.
        joules: Joules by the figures, at the clock that the window had.
        known: Its reference time.
    """

    run: Run
    window: Window
    joules: float
    known: Prediction

    @property
    def off(self) -> float:
        """How far the joules by the figures are above those measured, as a share."""
        return self.joules / self.window.joules - 1

    @property
    def slower(self) -> float:
        """Measured time over reference time."""
        return self.window.us / self.known.time_us


def section(site: Site, device: Device, link: Link) -> str:
    """The third ceiling of a device and its error; empty where nobody measured joules."""
    try:
        power, least = device.ceilings(DTYPE).power, device.bound(DTYPE).power
    except DeviceFigureError:
        return ""
    if power is None or least is None or not (found := rows(site, device)):
        return ""
    return sections(
        "## Joules",
        _verdict(found, device),
        f"Launched back to back, a kernel draws {power.static:g} W for as long as it runs, "
        f"{power.joules_per_flop * 1e12:.3g} pJ per FLOP at full clock, less by the square of a "
        f"lower clock, and {power.joules_per_byte * 1e12:.3g} pJ per DRAM byte. Where that exceeds "
        f"the {power.watts:g} W that the board may draw, it lowers the clock, and arithmetic slows "
        f"as much: the third time of a reference, from {power.tflops:g} TFLOP/s at full clock.",
        _bound(site, least, device),
        fold(
            "Every window",
            f"{len(found)} records: watts, clock, joules measured and by the model",
            table(_HEAD, [_cells(site, row, link) for row in found], right=_HEAD[2:9]),
        ),
    )


def rows(site: Site, device: Device) -> list[Row]:
    """The windows of a device, the longest first; none where its power is not known."""
    try:
        power = device.ceilings(DTYPE).power
    except DeviceFigureError:
        return []
    if power is None:
        return []
    runs = {id(run.record): run for run in site.runs}
    made = []
    for window in windows((run.record for run in site.runs), device, costs.cost):
        known = costs.reference(window.record)
        if known is not None:
            work = power.work(window.flops, window.bytes, window.clock)
            joules = power.static * window.us / 1e6 + work
            made.append(Row(runs[id(window.record)], window, joules, known))
    return sorted(made, key=lambda row: row.window.us, reverse=True)


def _verdict(found: Sequence[Row], device: Device) -> str:
    best = _fastest_each(found)
    held = [row.slower for row in best if row.window.held and row.known.bound == "power"]
    off = statistics.median(abs(row.off) for row in found)
    said = (
        f"The model below gives the joules of {len(found)} records on the {cell(device.name)} with "
        f"a median error of {off:.0%}, at most {max(abs(row.off) for row in found):.0%}."
    )
    if not held:
        return said
    spread = f"{min(held):.2f} to {max(held):.2f} times the reference"
    return (
        f"{said} At the {len(held)} problems where power sets the reference time, and held down "
        f"the clock of the fastest kernel, that takes {spread}, {statistics.median(held):.2f} in "
        "the median."
    )


def _fastest_each(found: Iterable[Row]) -> list[Row]:
    """The fastest window of each amount of work."""
    best: dict[tuple[int, int], Row] = {}
    for row in found:
        key = row.window.flops, row.window.bytes
        if key not in best or row.window.us < best[key].window.us:
            best[key] = row
    return list(best.values())


def _bound(site: Site, least: Power, device: Device) -> str:
    """How the bound uses power, and which record came closest."""
    closest, run = max(
        ((share, run) for run in site.runs if (share := _share(run, device)) is not None),
        key=lambda pair: pair[0],
    )
    return (
        "A fit is no bound. The bound takes the least joules that any fit without one of the "
        f"designs gives: {least.joules_per_flop * 1e12:.3g} pJ per FLOP, at the lowest clock that "
        f"was seen, and {least.joules_per_byte * 1e12:.3g} pJ per byte; it charges nothing for the "
        f"time that passes, and lets the board draw {least.watts:g} W, the most of any window. "
        "It is evidence and not physics: `records -- verify` tries it on every record, and the "
        f"closest, {cell(run.record.kernel.name)}, took {1 / closest:.2f} times the time that "
        "power alone allows."
    )


def _share(run: Run, device: Device) -> float | None:
    """Time that power allows over the shortest that was measured."""
    least = costs.bound(run.record) if run.record.target == device.key and run.is_timed else None
    return None if least is None else least.power_us / run.total.min_us


def _cells(site: Site, row: Row, link: Link) -> list[str]:
    window = row.window
    return [
        run_version(site, row.run, link),
        figures.record_link(row.run, link, cell(row.run.record.slug)),
        f"{window.watts:.0f}",
        f"{window.clock:.0%}",
        f"{window.joules:.4f}",
        f"{row.joules:.4f}",
        f"{row.off:+.0%}",
        f"{window.us:,.0f}",
        f"{row.known.time_us:,.0f}",
        SIDES[row.known.bound],
    ]
