"""Holds a README's Step 0 to the one that its work gives today."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from mla_var3 import inputs
from mla_var3.campaign.stepzero import StepZero, Work, figures_of, step_zero
from mla_var3.devices import Device
from mla_var3.errors import InputError
from mla_var3.workloads import Cost

#: How it states the work.
_WORK = re.compile(r"^Work(?: at .*)? \((\w+)\): ([\d,]+) FLOP, ([\d,]+) bytes, by .*\.$")
#: What Step 0 concludes: a line of this form that is not its own is somebody's.
_CONCLUDED = re.compile(r"^(- [\w ]+: .* us at the least|The tightest ceiling is |Reach .* us, )")


def of_text(path: Path, device: Device) -> StepZero:
    """Step 0 of the work that a text states, as the device's file gives it today.

    Raises:
        InputError: The text states no work, or more than one.
    """
    found = [m for line in inputs.read_text(path).splitlines() if (m := _WORK.match(line))]
    if len(found) != 1:
        raise InputError(f"{path.name}:", f"Work: it is stated {len(found)} times, as Step 0 "
                         "states it once")  # fmt: skip
    dtype, flops, moved = found[0].groups()
    cost = Cost(*(int(number.replace(",", "")) for number in (flops, moved)))
    return step_zero(Work(path.stem, {}, dtype, cost, ""), device, figures_of(dtype))


def require_lines(path: Path, told: StepZero) -> None:
    """Refuse a text that lacks a line of Step 0, or says something else in its place.

    Raises:
        InputError: Names the line and what belongs there.
    """
    lines = inputs.read_text(path).splitlines()
    own = told.lines()
    _require_once(path.name, lines, (told.goal(), *own))
    titles = {n: one for n, one in enumerate(lines, 1) if re.match(r"#+ Step 0: ", one)}
    for number, title in titles.items():
        if not title.endswith(f" on {told.device.name}"):
            raise InputError(
                f"{path.name}:{number}:", f"it says {title!r}, and the device is {told.device.name}"
            )
    for line in (told.goal(), *own[own.index("## Figures") :]):
        if not line or line.startswith("#") or line in lines:
            continue
        start = line.split(":")[0] if line.startswith("- ") else re.split(r"\d", line)[0]
        number = next((n for n, one in enumerate(lines, 1) if one.startswith(start)), 0)
        at = f"{path.name}:{number}:" if number else f"{path.name}:"
        said = f"it says {lines[number - 1]!r}" if number else "it lacks a line"
        raise InputError(at, f"{said}, and Step 0 {line!r}")


def _require_once(name: str, lines: Sequence[str], own: Collection[str]) -> None:
    """Refuse a ceiling, target or goal beside those of Step 0.

    Raises:
        InputError: Names the line.
    """
    kinds: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if (found := _CONCLUDED.match(line)) is None:
            continue
        start = line.split(":")[0] if line.startswith("- ") else found[1]
        if start in kinds:
            raise InputError(
                f"{name}:{number}:", f"it says {line!r}, which line {kinds[start]} states too"
            )
        kinds[start] = number
        if not any(mine.startswith(start) for mine in own):
            raise InputError(f"{name}:{number}:", f"it says {line!r}, and Step 0 has no such line")
