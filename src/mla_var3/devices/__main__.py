"""Command line ``python -m mla_var3.devices``: checks, lists, shows device files, writes peaks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from mla_var3 import arguments, front
from mla_var3.arguments import named
from mla_var3.devices.lint import lint, write_peaks
from mla_var3.devices.model import DEVICE_DIR, Device, Figure, all_devices, find
from mla_var3.errors import DeviceFigureError


def check() -> None:
    """Lint every device file."""
    _refuse(lint(DEVICE_DIR))
    conflicts = sum(len(device.conflicts) for device in all_devices())
    print(f"{len(all_devices())} device files are sound")
    print(f"{conflicts} conflicts between sources, each with the figure used and the reason")


def list_devices() -> None:
    """List the devices with their ceilings for bfloat16."""
    for device in all_devices():
        print(f"{device.key:30} {device.sm:8} {_ceilings(device)}")


def show(device: Annotated[tyro.conf.Positional[str], named("DEVICE")]) -> None:
    """Show every figure of a device with its source; a star marks the one used.

    Args:
        device: A key, a name or a torch device name.
    """
    print(describe(find(device)))


def write(out: Annotated[tyro.conf.Positional[Path], named("OUT")]) -> None:
    """Write the published peaks by torch device name as JSON, if the device files are sound.

    Args:
        out: File to write.
    """
    _refuse(lint(DEVICE_DIR))
    print(_relative(write_peaks(all_devices(), out)))


def describe(device: Device) -> str:
    """All figures of a device with their sources, as text."""
    lines = [f"{device.name} ({device.key}, {device.arch}, {device.sm})"]
    if device.note:
        lines.append(device.note)
    chosen = {used.metric: (device.resolve(used), used.reason) for used in device.used}
    for metric in dict.fromkeys(figure.metric for figure in device.figures):
        lines += ["", metric]
        picked, reason = chosen.get(metric, (None, ""))
        for figure in device.figures:
            if figure.metric == metric:
                mark = "*" if figure is picked else " "
                lines.append(f"{mark} {figure.value} {figure.unit}".rstrip() + _origin(figure))
        if reason:
            lines.append(f"  * is used: {reason}")
    return "\n".join(lines)


def _origin(figure: Figure) -> str:
    condition = f" ({figure.condition})" if figure.condition else ""
    if not figure.source:
        return condition
    where = f", {figure.address}" if figure.address else ""
    return f"{condition} - {figure.source}{where} [{figure.kind}]"


def _ceilings(device: Device) -> str:
    try:
        roof = device.ceilings("bfloat16")
    except DeviceFigureError as error:
        return str(error)
    return f"{roof.tflops:8g} TFLOP/s {roof.gbps:8g} GB/s  {roof.source_kind}"


def _refuse(faults: Sequence[str]) -> None:
    if faults:
        raise DeviceFigureError("\n".join(faults))


def _relative(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    command, rest, prog = arguments.choose(
        {"check": check, "list": list_devices, "show": show, "write": write},
        sys.argv[1:] if argv is None else argv,
        "python -m mla_var3.devices",
    )
    return arguments.parse(command, rest, prog) or 0


if __name__ == "__main__":
    front.run("mla_var3.devices.__main__:main")
