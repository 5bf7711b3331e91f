"""Command ``campaign``: the staged optimization of one kernel; Step 0 stands alone as well."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mla_var3 import arguments, devices, front
from mla_var3.app import adopting
from mla_var3.app.naming import asked_language
from mla_var3.arguments import named
from mla_var3.errors import PlanError, UsageError
from mla_var3.evidence import Scalar
from mla_var3.paths import relative, write_atomic
from mla_var3.runtime import registry

if TYPE_CHECKING:
    from mla_var3.campaign.stepzero import StepZero

PROG = "python -m mla_var3.app.campaign"
DEVICE = "nvidia-h200-sxm"


@dataclass(frozen=True, kw_only=True)
class StepZeroOptions:
    """Work out Step 0: sourced figures, work, three ceilings and targets.

    Attributes:
        subject: D V, or an adopted FILE.
        device: Key or name of the device.
        problem: Sizes, as b=32,s=1; those left out have their defaults.
        accept: Metrics that may stay UNKNOWN, comma separated.
        to: Write it to this file too.
        json: Print it as JSON.
        lang: Language, where the design exists in several.
    """

    subject: Annotated[tyro.conf.Positional[tuple[str, ...]], named("D V | FILE ...")] = field(
        default=()
    )
    device: str = DEVICE
    problem: str = ""
    accept: str = ""
    to: Path | None = None
    json: bool = False
    lang: str | None = None


def step0(argv: Sequence[str]) -> int:
    """Work out Step 0: sourced figures, the work, three ceilings and the targets."""
    options = arguments.parse(StepZeroOptions, argv, f"{PROG} step0")
    found = step_zero(
        options.subject, options.device, options.problem, options.accept, options.lang
    )
    print(json.dumps(found.data(), indent=1) if options.json else found.text(), end="")
    if options.json:
        print()
    if options.to is not None:
        write_atomic(options.to, found.text())
        print(f"wrote {relative(options.to)}")
    return 0


def step_zero(
    subject: Sequence[str], device: str, problem: str, accept: str, lang: str | None = None
) -> StepZero:
    """Step 0 of what a command line names.

    Raises:
        UsageError: It names nothing, or too much.
        DeviceFigureError: A figure is UNKNOWN and was not accepted.
    """
    from mla_var3.campaign import stepzero, works

    if not 1 <= len(subject) <= 2:
        raise UsageError(f"a design and a version, or a file, must be given; see {PROG} --help")
    board, sizes = devices.find(device), sizes_of(problem)
    if adopting.is_file(subject[0]):
        if len(subject) > 1:
            raise UsageError(f"a file has no versions, and {subject[1]!r} is given")
        work = works.of_file(Path(subject[0]), sizes)
    else:
        name, version = subject[0], subject[1] if len(subject) > 1 else None
        found = registry.find(name, version, asked_language(name, lang))
        work = works.of_version(found, sizes, board)
    return stepzero.step_zero(work, board, [part for part in accept.split(",") if part])


def sizes_of(text: str) -> Mapping[str, Scalar]:
    """Sizes of ``b=32,s=1,causal=true``.

    Raises:
        UsageError: A part is no ``name=value``.
    """
    found: dict[str, Scalar] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"--problem={text}: {part!r} is not name=value")
        if name in found:
            raise UsageError(f"--problem={text}: {name} is given twice")
        found[name] = _value(value)
    return found


def _value(text: str) -> Scalar:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if value < 0 or value != value:
            raise PlanError(f"a size of {text} is below 0")
        return value
    return text


COMMANDS = {"step0": step0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    command, rest, _ = arguments.choose(COMMANDS, sys.argv[1:] if argv is None else argv, PROG)
    return command(rest) or 0


if __name__ == "__main__":
    front.run("mla_var3.app.campaign:main")
