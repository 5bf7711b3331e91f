"""Command line of the emulator: runs a script without a GPU and reports faults of its kernels.

``python -m mla_var3.emulator run SCRIPT`` prints a summary and every finding; flags add counts,
timelines and breakpoints.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from mla_var3 import arguments
from mla_var3.collecting import uncollected
from mla_var3.emulator.diagnostics import Diagnostic, Reporter, as_json
from mla_var3.emulator.options import Options, model
from mla_var3.emulator.replay import Replay
from mla_var3.emulator.stops import stop
from mla_var3.emulator.timeline import difference
from mla_var3.errors import EXIT_BAD_INPUT

if TYPE_CHECKING:
    from mla_var3.emulator.clusters import Launch
    from mla_var3.emulator.emulation import Emulation

PROG = "python -m mla_var3.emulator"


@dataclass(frozen=True)
class Run:
    """Run a script without a GPU; everything after the script's name is the script's.

    Attributes:
        arch: Architecture to compile for.
        schedules: Run under so many schedules: the lowest pc first, then those of seeds 1, 2, ...;
            by default three where a kernel synchronizes and takes less than a second, else one.
        seed: Run under the schedule of this seed only, as a report names it.
        memory_model: What is assumed about hardware that PTX does not promise.
        jobs: Processes over which CTAs are spread; 0 takes every core.
        checks: Look for races and the like.
        counts: Print counts by Python line.
        json: Write the diagnostics to this file.
        timeline: Write the first launch's first cluster to this file (.svg, or .json for Perfetto);
            with ``schedules`` also say where the schedules part.
        timed: With ``timeline``: put the launch on a clock by a table of durations, one per
            instruction, over the same barriers; without, a step is an instruction issued.
        multiprocessors: Multiprocessors that the emulated device says it has.
        stop: Print who is where, and the barriers, when this line is reached, such as ring.py:49.
        tile: With ``stop``, print this tile of shared memory: 0x400:f16:64x64:sw128.
    """

    arch: str = "sm_90a"
    schedules: int | None = None
    seed: int | None = None
    memory_model: Literal["default", "strict"] = "default"
    jobs: int = 0
    checks: bool = True
    counts: bool = False
    json: Path | None = None
    timeline: Path | None = None
    timed: bool = False
    multiprocessors: int = 4
    stop: str = ""
    tile: tuple[str, ...] = ()
    script: Annotated[tuple[str, ...], arguments.named("script.py [arguments]")] = field(default=())

    def options(self, seed: int | None) -> Options:
        """As options of a run."""
        return Options(
            checks=self.checks,
            model=model(self.memory_model),
            seed=seed,
            jobs=self.jobs,
            counting="full" if self.counts else "basic",
            timeline=self.timeline is not None,
            multiprocessors=self.multiprocessors,
            stop=stop(self.stop, self.tile) if self.stop else None,
        )


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, or 1 where something was found."""
    commands = {"run": run, "conformance": _conformance}
    command, rest, prog = arguments.choose(commands, sys.argv[1:] if argv is None else argv, PROG)
    return command(rest, prog) or 0


def run(
    argv: list[str], prog: str, told: Callable[[Emulation], None] = lambda _emulation: None
) -> int:
    """Run a script that was written for a GPU, and report what is wrong in its kernels.

    Args:
        argv: What stands behind the command.
        prog: Name in the help.
        told: Told of all that ran, behind the summary and before findings.
    """
    own, script = _divided(list(argv))
    chosen: Run = arguments.parse(Run, own, prog)
    if not script:
        print(f"error: a script must be given; see {prog} --help", file=sys.stderr)
        return EXIT_BAD_INPUT
    with uncollected():
        from mla_var3.emulator.script import load, run_script

        load()
    pictured = chosen.timeline is not None and chosen.schedules is None
    one = chosen.seed is not None or pictured or bool(chosen.stop)
    more = () if one else [chosen.options(s) for s in range(1, chosen.schedules or 3)]
    path, options = Path(script[0]), chosen.options(chosen.seed)
    ways = (more, ()) if chosen.schedules else ((), more)
    emulation = run_script(path, script[1:], options, chosen.arch, *ways)
    found = list(_apart(emulation.diagnostics))
    _summary(emulation, chosen)
    told(emulation)
    for d in found:
        print(d)
    if chosen.json:
        chosen.json.write_text(as_json(found) + "\n", encoding="utf-8")
        print(f"diagnostics: {chosen.json}")
    if emulation.ended.error is not None:
        raise emulation.ended.error
    return emulation.ended.code or int(bool(found))


def _apart(diagnostics: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """Each finding once, under the first schedule that shows it."""
    seen = set()
    for d in diagnostics:
        key = (d.kernel, d.kind, d.at, d.other, d.model, d.who if d.kind == "deadlock" else "")
        if key not in seen:
            seen.add(key)
            yield d


def _divided(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our flags, and the script with its own: they begin at the first word that names a file."""
    for i, word in enumerate(argv):
        before = argv[i - 1] if i else ""
        flag_value = before.startswith("--") and "=" not in before
        if (
            word.endswith(".py")
            and not word.startswith("-")
            and not (flag_value and before == "--json")
        ):
            return argv[:i], argv[i:]
    return argv, []


def _summary(emulation: object, run: Run) -> None:
    from mla_var3.emulator.emulation import Emulation

    assert isinstance(emulation, Emulation)
    for launch in emulation.launches:
        c = launch.counts
        print(
            f"{launch.kernel[:60]}: {launch.clusters} clusters of {launch.cluster} x "
            f"{launch.block} threads in "
            f"{launch.seconds:.2f} s, {c.total_flops:.3g} FLOP, "
            f"{c.total_bytes('global read'):.3g} bytes read, "
            f"{c.total_bytes('global write'):.3g} written, {len(launch.diagnostics)} findings"
        )
        if run.counts:
            _table(launch.counts.lines())
    if run.timeline and emulation.launches:
        _timelines(emulation.launches[: len(emulation.others) + 1], run.timeline, run.timed)


def _timelines(launches: list[Launch], path: Path, timed: bool = False) -> None:
    """Write the first launch's timeline, and say where its other schedules part from it."""
    *others, first = launches
    if first.timeline is None:
        return
    kernel = first.counts.program.kernel
    site = Reporter(kernel, "", "").site
    shown = first.timeline
    if timed and first.trace is not None:
        replay = Replay(first.trace, kernel.instructions)
        shown = replay.timeline()
        print(f"on the clock of the table: {replay.end:,.0f} cycles")
    text = shown.svg(site) if path.suffix == ".svg" else shown.chrome(site)
    path.write_text(text, encoding="utf-8")
    print(f"timeline: {path}")
    for seed, other in enumerate(others, 1):
        if other.timeline is not None:
            for line in difference(first.timeline, other.timeline, site):
                print(f"  seed {seed} parts: {line}")


def _table(lines: object) -> None:
    from mla_var3.emulator.count import Line

    assert isinstance(lines, dict)
    for (file, number), line in sorted(lines.items()):
        assert isinstance(line, Line)
        total = sum(line.instructions.values())
        moved = ", ".join(f"{k} {v}" for k, v in sorted(line.bytes.items()))
        extra = f"; {line.bank_conflicts} bank conflicts" if line.bank_conflicts else ""
        extra += f"; {line.sectors} sectors for {line.ideal_sectors}" if line.sectors else ""
        print(
            f"  {Path(file).name}:{number}: {total} instructions, {line.flops} FLOP; {moved}{extra}"
        )


def _conformance(argv: list[str], prog: str) -> int:
    """Run NVIDIA's CuTe DSL examples under the emulator and write the table of what happened."""
    from mla_var3.emulator import examples

    return examples.main(argv, prog)
