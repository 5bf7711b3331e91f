"""Checks the device files for faults, and writes published peak rates as a JSON table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from mla_var3.devices import units
from mla_var3.devices.model import NOT_SUPPORTED, UNKNOWN, Device, Figure, parse
from mla_var3.errors import DeviceFigureError, HyperMlaError

_PEAK_METRICS = {
    "peak_float16_float32_tflops": "tensor_fp16_fp32acc",
    "peak_bfloat16_float32_tflops": "tensor_bf16_fp32acc",
    "peak_dram_bw_GBps": "dram_bandwidth",
}


def lint(directory: Path) -> list[str]:
    """Check every device file.

    Args:
        directory: Holds one ``<key>.toml`` per device.

    Returns:
        One sentence per fault, each starting with the file and the key; empty when all is sound.
    """
    faults: list[str] = []
    devices: list[Device] = []
    paths = sorted(directory.glob("*.toml"))
    if not paths:
        return [f"{directory}: there are no device files"]
    for path in paths:
        device, problems = parse(path)
        faults += problems
        if device is not None:
            devices.append(device)
            faults += [f"{path.name}: {fault}" for fault in _device_faults(device, path.stem)]
    faults += _duplicate_faults(devices)
    return faults


def _device_faults(device: Device, stem: str) -> Iterable[str]:
    if device.key != stem:
        yield f"device.key: {device.key!r} is not the name of the file"
    if device.default_for is not None and device.default_for != device.sm:
        yield f"device.default_for: {device.default_for} is not the device's own arch {device.sm}"
    for figure in device.figures:
        yield from _figure_faults(figure)
    for repeated, count in Counter(device.figures).items():
        if count > 1:
            yield f"{repeated.metric}: the same figure is stated {count} times"
    for metric, count in Counter(used.metric for used in device.used).items():
        if count > 1:
            yield f"used {metric}: {count} entries choose a figure, one may"
    yield from _choice_faults(device)


def _figure_faults(figure: Figure) -> Iterable[str]:
    try:
        units.quantity(figure.metric)
    except HyperMlaError as error:
        yield f"{figure.metric}: {error}"


def _choice_faults(device: Device) -> Iterable[str]:
    """Faults of what ``Device.figure`` would answer for each metric."""
    explained = {used.metric for used in device.used}
    for used in device.used:
        try:
            figure = device.resolve(used)
        except DeviceFigureError as error:
            yield f"used {used.metric}: {error}"
            continue
        if figure.is_sparse:
            yield f"used {used.metric}: the figure assumes sparsity, which no kernel uses"
    for metric in dict.fromkeys(figure.metric for figure in device.figures):
        rows = [figure for figure in device.figures if figure.metric == metric]
        absent = [row for row in rows if row.value in (UNKNOWN, NOT_SUPPORTED)]
        if absent and len(rows) > 1:
            yield f"{metric}: is both {absent[0].value} and stated"
    for metric, figures in device.conflicts.items():
        if metric not in explained:
            values = ", ".join(f"{figure.value:g} {figure.unit}" for figure in figures)
            yield f"{metric}: {values} disagree and no [[used]] entry chooses"


def _duplicate_faults(devices: Sequence[Device]) -> Iterable[str]:
    for what, values in (
        ("key", [device.key for device in devices]),
        ("name", [device.name.casefold() for device in devices]),
        ("torch name", [name.casefold() for device in devices for name in device.torch_names]),
        ("default_for", [device.default_for for device in devices if device.default_for]),
    ):
        for value, count in Counter(values).items():
            if count > 1:
                yield f"device {what} {value!r} occurs in {count} places, it must be unique"


def peaks(devices: Iterable[Device]) -> dict[str, dict[str, str | float | None]]:
    """Published dense peaks by torch device name; ``None`` where the figure is UNKNOWN."""
    table: dict[str, dict[str, str | float | None]] = {}
    for device in devices:
        for name in device.torch_names:
            entry: dict[str, str | float | None] = {"device": device.key}
            for field, metric in _PEAK_METRICS.items():
                try:
                    entry[field] = device.figure(metric).normalised
                except DeviceFigureError:
                    entry[field] = None
            table[name] = entry
    return dict(sorted(table.items()))


def render_peaks(devices: Iterable[Device]) -> str:
    """The text of the peaks file."""
    return json.dumps(peaks(devices), indent=2, ensure_ascii=False) + "\n"


def write_peaks(devices: Iterable[Device], path: Path) -> Path:
    """Write the peaks file atomically; returns its path.

    Raises:
        DeviceFigureError: It cannot be written.
    """
    from mla_var3.paths import write_atomic  # With it comes torch, which no reader needs.

    try:
        write_atomic(path, render_peaks(devices))
    except OSError as error:
        raise DeviceFigureError(f"{path} cannot be written: {error.strerror}") from error
    return path
