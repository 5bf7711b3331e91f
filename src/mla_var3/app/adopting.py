"""Runs the commands check, profile and compare where the name given is a user's adopted file.

``campaign.adopted`` does the checking and timing; this module parses flags and prints results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from mla_var3 import arguments, devices
from mla_var3.app import launcher
from mla_var3.app.naming import value_of
from mla_var3.devices import Device
from mla_var3.errors import UsageError
from mla_var3.evidence import Record, Scalar
from mla_var3.evidence.compare import versus
from mla_var3.paths import relative, write_atomic
from mla_var3.tables import microseconds
from mla_var3.workloads import check_minima, option

if TYPE_CHECKING:
    from mla_var3.campaign.adopted import Adopted, Checked

EXIT_FAILED = 1
#: Patterns that a report names, and columns of tables when the output is not a terminal.
ADVICE = 3


def is_file(name: str | None) -> bool:
    """Whether a name is that of a file, not of a design."""
    return name is not None and name.endswith(".py")


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """How to profile an adopted file; its sizes are flags too."""

    prof_type: Literal["disabled", "static", "event"] | None = option(
        None, "what to do: disabled checks, static also compiles, event times on a GPU (default: "
        "event with a GPU, else static)",
    )  # fmt: skip
    bench_runs: int = option(50, "timed runs", minimum=1)
    out_dir: Path | None = option(None, "folder of the report (default: out/)")
    arch: str | None = option(None, "archs, comma separated; of PTX the one that it runs as")
    verbose: bool = option(False, "print the whole report, not one line per target")


def check(name: str) -> int:
    """Check an adopted file at each of its sizes; 0 when all are right, 1 when any is wrong."""
    from mla_var3.campaign import adopted

    console = Console(soft_wrap=True, highlight=False)
    found = adopted.adopt(Path(name))
    wrong, those = 0, found.told.checks
    for number, sizes in enumerate(those, 1):
        checked = found.check(sizes)
        wrong += bool(checked.wrong)
        verdict = "[red]WRONG[/red]" if checked.wrong else "[green]ok[/green]"
        slug = adopted.slug(checked.problem)
        console.print(
            f"\\[{number:>3}/{len(those)}] {found.name} {slug} error {checked.error:.1e} {verdict}"
        )
        for said in (checked.wrong, *_warnings(checked)):
            if said:
                console.print(f"          {said}", markup=False)
    problems = f"{len(those)} problem{'s' * (len(those) > 1)}"
    console.print(f"{problems}: {f'{wrong} wrong' if wrong else 'all right'}")
    return EXIT_FAILED if wrong else 0


def _warnings(checked: Checked) -> list[str]:
    found = (str(d) for d in checked.trace.diagnostics if d.severity == "warning")
    return list(dict.fromkeys(found))


@contextlib.contextmanager
def _flags_are_ours() -> Iterator[None]:
    """Without the process's arguments, which the CuTe DSL reads as its own when it compiles."""
    kept = sys.argv
    sys.argv = kept[:1]
    try:
        yield
    finally:
        sys.argv = kept


@_flags_are_ours()
def profile(name: str, argv: Sequence[str]) -> int:
    """Check an adopted file, compile its kernels, or time it on a GPU, and say what to try next."""
    from mla_var3.campaign import adopted, launching

    if (device := value_of("--device", argv)) is not None:
        raise _refused(name, devices.find(device))
    prog = f"python -m mla_var3.kernel {name}"
    found = adopted.adopt(Path(name), value_of("--arch", argv))
    kind = _argument_type(found.told.sizes)
    parsed = arguments.parse(kind, argv, prog, f"Profile {name}; its sizes are flags.")
    options = ProfileOptions(
        **{f.name: getattr(parsed, f.name) for f in dataclasses.fields(ProfileOptions)}
    )
    check_minima(options, UsageError, "--")
    sizes = {name: getattr(parsed, name) for name in found.told.sizes}
    mode = options.prof_type or _default_mode()
    if mode == "event":
        record, checked = launching.timed(found, sizes, options.bench_runs)
        return _shown([record], found, checked, options)
    checked = found.check(sizes)
    if mode == "disabled":
        found = dataclasses.replace(found, archs=())
    made = adopted.records(found, checked, lambda text: print(f"· {text}", flush=True))
    return _shown(made, found, checked, options)


def _refused(name: str, device: Device) -> UsageError:
    """Why a file is not profiled for a device that is asked for, and what is there instead."""
    from mla_var3.campaign import measuring

    if device.is_compile_target:
        return UsageError(
            f"an adopted file takes no --device: --arch={device.compile_arch} compiles for "
            f"{device.name}, and times are of the GPU here"
        )
    measuring.require_amd(Path(name), device)
    asked = f"{name} --device={device.key}"
    return UsageError(
        f"nothing is run on {device.name}, since times here are by CUDA alone: `nox -s campaign -- "
        f"step0 {asked}` states its ceilings, and `nox -s tools -- plan {asked}` the commands to "
        "measure it with"
    )


def _default_mode() -> str:
    import torch

    return "event" if torch.cuda.is_available() else "static"


def _argument_type(sizes: Mapping[str, Scalar]) -> Any:
    """A dataclass whose fields are the flags: the sizes, then how to run."""
    from mla_var3.app.options import tyro_field

    own = {f.name: f for f in dataclasses.fields(ProfileOptions)}
    if taken := [name for name in sizes if name in own]:
        raise UsageError(f"a size may not be called {taken[0]}, which is a flag of profile")
    rows: list[Any] = [
        (name, Annotated[type(value), tyro.conf.arg(help="size of the inputs")],
         dataclasses.field(default=value))
        for name, value in sizes.items()
    ]  # fmt: skip
    hints = dataclasses.fields(ProfileOptions)
    types = tyro_types()
    rows += [tyro_field(f, types[f.name], tyro.conf.FlagCreatePairsOff) for f in hints]
    return dataclasses.make_dataclass("Arguments", rows, frozen=True)


def tyro_types() -> dict[str, Any]:
    """Types of the options by name."""
    from typing import get_type_hints

    return get_type_hints(ProfileOptions)


def _shown(made: list[Record], found: Adopted, checked: Checked, options: ProfileOptions) -> int:
    """Write records and report, and print one screen."""
    from mla_var3 import evidence, knowledge, paths
    from mla_var3.campaign import adopted
    from mla_var3.knowledge import matching
    from mla_var3.profiling import report, summary
    from mla_var3.runtime import costs

    with costs.given(adopted.work(checked)):
        passed = [record for record in made if isinstance(record.outcome, evidence.Passed)]
        steps = matching.steps(passed, knowledge.load_all(), ADVICE) if passed else []
        known = _uncompiled(made[0], checked) if found.kind == "torch" else []
        told = None if known else [step.brief for step in steps]
        brief = summary.render(made, told, known)
        folder = (options.out_dir or paths.out_dir()) / "profiles" / "adopted" / found.name
        path = folder / adopted.slug(made[0].problem) / "report.md"
        whole = report.render(made, told and [str(step) for step in steps], known=known)
    write_atomic(path, whole)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=launcher.PIPE_WIDTH)
    if options.verbose:
        console.print(Markdown(whole))
    else:
        launcher.dense(console, brief)
    for written in adopted.write(made):
        print(f"record {relative(written)}")
    print(f"wrote {relative(path)}")
    return EXIT_FAILED if len(passed) < len(made) else 0


def _uncompiled(record: Record, checked: Checked) -> list[tuple[str, str]]:
    """What stands in place of a static profile of plain torch; nothing beside a time."""
    from mla_var3.campaign.running import DEFAULT_ARCHS
    from mla_var3.profiling.report import SIDES
    from mla_var3.runtime import costs

    if record.is_timed or checked.wrong:
        return []
    boards = [devices.default_for_arch(arch) for arch in DEFAULT_ARCHS["cutile"]]
    bounds = [least for board in boards if (least := costs.bound(record, device=board)) is not None]
    told = ", ".join(
        f"{microseconds(one.time_us)} us on {one.device} by {SIDES[one.bound]}" for one in bounds
    )
    work = f"{checked.cost.flops:,} FLOP ({checked.counted or 'none counted'})"
    return [
        ("Compiled", "nothing: plain PyTorch chooses its kernels on the GPU, so that there is no "
         "static profile; --prof_type=event there times it"),
        ("Bound", f"{told}, of {work} and {checked.cost.bytes:,} bytes in and out"),
    ]  # fmt: skip


def compare(first: str, second: str) -> Iterator[str | Table]:
    """Two adopted files, from their records: the winner in a sentence, then the figures.

    Raises:
        UsageError: One of them is not a file, or both are the same.
        ToolchainError: One has no record as it is.
        RecordError: They share no target and sizes.
    """
    from mla_var3.app import winner
    from mla_var3.campaign import adopted
    from mla_var3.errors import RecordError

    if not is_file(second):
        raise UsageError(f"{first} is compared with another file, and {second} is none")
    if Path(first).resolve() == Path(second).resolve():
        raise UsageError(f"{first} is given twice; name two files")
    both = [adopted.require_records(Path(name)) for name in (first, second)]
    left, right = ({(r.target, r.mode, r.slug): r for r in each} for each in both)
    pairs = [(left[key], right[key]) for key in left if key in right]
    if not pairs:
        raise RecordError(f"{first} and {second} share no record of the same sizes and target")
    names = _apart(Path(first), Path(second))
    before, after = ([record for record in each if record.is_timed] for each in both)
    timed = versus(before, after)
    found = winner.duel(names, timed, pairs)
    yield found.verdict
    yield from winner.duel_tables(found)


def _apart(first: Path, second: Path) -> tuple[str, str]:
    if first.name != second.name:
        return first.name, second.name
    return str(first), str(second)
