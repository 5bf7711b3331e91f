"""Command ``campaign``: takes one kernel through staged optimization, or prints Step 0 alone.

Parses the subcommands (init, next, plan, gate, ...); the package ``campaign`` carries them out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mla_var3 import arguments, devices, front
from mla_var3.app import adopting
from mla_var3.app.naming import asked_language
from mla_var3.arguments import named
from mla_var3.errors import NotExecutableError, PlanError, UsageError
from mla_var3.evidence import Scalar
from mla_var3.paths import relative, write_atomic
from mla_var3.runtime import registry

if TYPE_CHECKING:
    from mla_var3.campaign.stepzero import StepZero
    from mla_var3.campaign.workspace import Workspace

PROG = "python -m mla_var3.app.campaign"
DEVICE = "nvidia-h200-sxm"
JsonFlag = Annotated[bool, tyro.conf.arg(name="json")]


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


def init(
    name: Annotated[tyro.conf.Positional[str], named("NAME")],
    subject: Annotated[tyro.conf.Positional[tuple[str, ...]], named("D V | FILE ...")] = (),
    device: str = DEVICE,
    problem: str = "",
    accept: str = "",
    lang: str | None = None,
) -> None:
    """Begin a campaign: a workspace with Step 0, and what the project knows as its memory.

    Args:
        name: Its name.
        subject: A design and the version to begin with, or an adopted file.
        device: Key or name of the device.
        problem: Sizes, as n=4096; its own by default.
        accept: Metrics that may stay UNKNOWN, comma separated.
        lang: Language, where the design exists in several.
    """
    from mla_var3.campaign import seeding, workspace

    if not workspace.NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name: small letters and digits, joined by - or _")
    if len(subject) == 1 and "/" in subject[0] and not adopting.is_file(subject[0]):
        raise UsageError(f"{subject[0]} is no adopted file; nox -s adopt -- --help says what it is")
    found = step_zero(subject, device, problem, accept, lang)
    version = _version(subject, lang)
    # What compiles for none of its archs is refused before a workspace is made.
    if version is not None:
        _require_workable(version, found.device)
    settings = workspace.Settings(
        name=name, device=found.device.key,
        source=str(Path(subject[0]).resolve()) if version is None else None,
        design=None if version is None else version.qualified,
        start="v0" if version is None else version.version,
        problem=dict(sizes_of(problem)), target_us=found.target_us,
    )  # fmt: skip
    known = [] if version is None else seeding.entries(version, settings.problem)
    workspace.create(settings, _readme(name, found), known)
    made = _find(name)
    print(f"wrote {relative(made.root)}/")
    if known:
        failed = sum(entry.failed for entry in known)
        print(f"memory: {len(known)} versions of {version and version.qualified} are known, "
              f"{failed} of them failed")  # fmt: skip
    _print(made)


def _version(subject: Sequence[str], lang: str | None) -> registry.Version | None:
    """The version that a command line names; None for a file."""
    if adopting.is_file(subject[0]):
        return None
    name, version = subject[0], subject[1] if len(subject) > 1 else None
    return registry.find(name, version, asked_language(name, lang))


def _require_workable(version: registry.Version, device: devices.Device) -> None:
    """Refuse a design that is somebody's library, and a device that nothing compiles for.

    Raises:
        UsageError: The design has no kernel to change.
        DeviceFigureError: The languages compile for no GPU of the vendor.
    """
    from mla_var3 import languages

    if not languages.find(version.language).archs:
        raise UsageError(
            f"{version.key} calls somebody's library, so that there is no kernel to change; a "
            "kernel in a file of its own can be adopted"
        )
    _ = device.compile_arch


def _find(name: str) -> Workspace:
    """A campaign, whose versions of ours are checked as ``check`` does."""
    from mla_var3.campaign import workspace

    return workspace.find(name, _wrong)


def _wrong(version: registry.Version) -> str:
    """What is wrong with a version at any small problem; empty where nothing is.

    Raises:
        NotExecutableError: It cannot run here.
    """
    from rich.console import Console

    from mla_var3.app import checking

    console = Console(soft_wrap=True, highlight=False)
    outcomes = checking.check_groups(checking.groups_of(version), console)
    if all(one.skipped for one in outcomes):
        raise NotExecutableError(outcomes[0].skipped)
    return next((f"{o.slug}: {o.explanation}" for o in outcomes if o.explanation), "")


def _readme(name: str, found: StepZero) -> str:
    return f"# Campaign {name}\n\n{found.goal()}\n\n#{found.text()}\n## Insights\n\nTBD\n"


def next_(
    name: Annotated[tyro.conf.Positional[str], named("NAME")], as_json: JsonFlag = False
) -> None:
    """Say what to do next: one action, its command, and why.

    Args:
        name: The campaign.
        as_json: Print it as JSON.
    """
    _print(_find(name), as_json)


def _print(found: Workspace, as_json: bool = False) -> None:
    from mla_var3.campaign import stages

    action = stages.following(found)
    if as_json:
        print(json.dumps(action.data(), indent=1))
        return
    print(f"next ({action.stage}): {action.why}")
    if action.blocked:
        print(f"  refused: {action.blocked}")
    if action.file:
        print(f"  edit {action.file}")
    print(f"  {action.command}")


def plan(
    name: Annotated[tyro.conf.Positional[str], named("NAME")],
    pattern: str = "none",
    hypothesis: str = "",
    change: str = "",
    lines: int = 0,
) -> None:
    """Write the plan of the next version, with what its parent's record calls for.

    Args:
        name: The campaign.
        pattern: Page of the knowledge that it follows.
        hypothesis: What is expected, and why.
        change: What is to be changed.
        lines: About how many lines that takes.
    """
    from mla_var3.campaign import stages

    if lines < 0:
        raise UsageError(f"--lines={lines} is below 0")
    found = _find(name)
    path = stages.make_plan(found, pattern, hypothesis, change, lines)
    print(f"wrote {relative(path)}")
    _print(found)


def gate(
    name: Annotated[tyro.conf.Positional[str], named("NAME")],
    version: Annotated[tyro.conf.Positional[str], named("VERSION")],
) -> int:
    """Take a version through the gates: check, compile, time, remember, commit.

    Args:
        name: The campaign.
        version: The version.

    Returns:
        1 when it is wrong.
    """
    from mla_var3.campaign import stages

    found = _find(name)
    made = stages.gate(found, version, lambda text: print(f"· {text}", flush=True))
    entry = made.entry
    error = entry.correctness.error
    said = entry.correctness.message or f"right, error {0.0 if error is None else error:.1e}"
    print(f"{version}: {entry.verdict}; {said}")
    for line in (*entry.facts, *(f"warning: {warning}" for warning in made.warnings)):
        print(f"  {line}")
    print(f"wrote {relative(made.report)} and {relative(found.memory.path(version))}")
    _print(found)
    return int(entry.verdict == "wrong")


def restart(
    name: Annotated[tyro.conf.Positional[str], named("NAME")],
    start: Annotated[str, tyro.conf.arg(name="from")],
) -> None:
    """Go on from an earlier version: all that came after it is masked.

    Args:
        name: The campaign.
        start: The version.
    """
    found = _find(name)
    masked = [entry.version for entry in found.memory.restart(start)]
    found.commit(f"restart from {start}")
    print(f"masked {', '.join(masked) or 'nothing'}")
    _print(found)


def auto_(
    name: Annotated[tyro.conf.Positional[str], named("NAME")],
    versions: str = "",
    budget: float = 480.0,
    top: int = 6,
    most: int = 64,
    everything: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Walk tilings, compiler hints and versions: static facts first, the best timed where a GPU is.

    Args:
        name: The campaign.
        versions: Versions to walk, comma separated, or all that did not fail; else the current one.
        budget: Seconds for timing.
        top: Candidates of each version to time.
        most: Candidates of each version to compile.
        everything: Time the pruned ones too, which tells what pruning costs.
    """
    from mla_var3.campaign import auto, candidates, trials

    for flag, value in (("budget", budget), ("top", top), ("most", most)):
        if not value >= 1:
            raise UsageError(f"--{flag}={value} is below 1")
    found = _find(name)
    limits = auto.Limits(budget, top, most, everything)
    walk = auto.Walk(found, limits, lambda text: print(f"· {text}", flush=True))
    made = walk.run(candidates.versions_of(found, versions))
    text = trials.report(found, made, top)
    write_atomic(found.root / trials.REPORT, text)
    write_atomic(found.root / trials.DATA, trials.data(made, top))
    best = trials.fastest(made)
    if best is not None and (kept := auto.keep_tuned(found, best)):
        print(f"kept for the next profile: {relative(kept)}")
    found.commit(f"auto: {len(made)} trials")
    print("\n".join(line for line in text.partition("\n| ")[0].splitlines()[1:] if line))
    print(f"wrote {relative(found.root / trials.REPORT)}, {trials.DATA} and {auto.TRIALS}/")


def publish(name: Annotated[tyro.conf.Positional[str], named("NAME")]) -> None:
    """Copy a campaign to the committed ones, from which the site makes its page.

    Args:
        name: The campaign.
    """
    from mla_var3.campaign import publishing

    print(f"wrote {relative(publishing.publish(_find(name)))}/")


def remember(argv: Sequence[str]) -> int:
    """create|read|update|mask|unmask|summary|schema: the memory of a campaign."""
    from mla_var3.app import remembering

    return remembering.main(argv, f"{PROG} memory")


FUNCTIONS: dict[str, Callable[..., int | None]] = {
    "init": init, "next": next_, "plan": plan, "gate": gate, "auto": auto_, "restart": restart,
    "publish": publish,
}  # fmt: skip
COMMANDS: dict[str, Callable[..., int | None]] = {
    "step0": step0, **FUNCTIONS, "memory": remember,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    command, rest, prog = arguments.choose(COMMANDS, argv, PROG)
    if command in FUNCTIONS.values():
        return arguments.parse(command, rest, prog) or 0
    return command(rest) or 0


if __name__ == "__main__":
    front.run("mla_var3.app.campaign:main")
