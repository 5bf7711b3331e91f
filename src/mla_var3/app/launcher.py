"""Runs a parsed plan in the profiling mode that was asked for, and prints summary and files."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from mla_var3 import devices, languages
from mla_var3.app.options import RunOptions
from mla_var3.errors import NotExecutableError, PlanError, ToolchainError, UsageError
from mla_var3.evidence import Record
from mla_var3.paths import out_dir, relative, results_dir
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version

if TYPE_CHECKING:
    from mla_var3.knowledge import Catalogue
    from mla_var3.knowledge.standing import Standing
    from mla_var3.profiling.settings import ProfileResult

EXIT_FAILED = 1
#: Columns of tables when the output is not a terminal.
PIPE_WIDTH = 120
#: Patterns that a report names.
ADVICE = 3


def run(version: Version, plan: KernelPlan, options: RunOptions) -> int:
    """Run ``plan`` in the asked mode; 0 when it passed, 1 when the kernel is wrong.

    Raises:
        HyperMlaError: Bad input or a missing tool.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)

    errors = Console(highlight=False, stderr=True, soft_wrap=True)  # A path stays in one line.

    def say(text: str) -> None:
        console.print(f"· {text}", markup=False)

    mode = mode_of(version, options, say)
    _refuse_target(mode, options)
    advice = Advice(version, plan)
    settings = settings_of(version, options, mode) | {
        "advise": advice.steps, "known": advice.known,
    }  # fmt: skip
    for folder in (options.out_dir or out_dir(), results_dir()):
        _require_writable(folder)
    from mla_var3.profiling import modes, report, summary

    with console.status(version.key) as status:

        def told(text: str) -> None:
            status.update(text)
            if options.verbose or not console.is_terminal:
                (console if options.verbose else errors).print(f"· {text}", markup=False)

        try:
            result = modes.run(mode, plan, progress=told, **settings)
        except NotExecutableError:  # What is known of it is told all the same.
            if known := advice.known([]):
                dense(console, f"**{version.key}**: not run here.\n\n{report.facts(known)}")
            raise
    if options.verbose:
        shown = report.render(result.records, result.steps, known=result.known, brief=True)
        console.print(Markdown(shown))
    else:
        dense(console, summary.render(result.records, advice.brief, result.known))
    for line in wrote(result):
        print(line)
    return 0 if result.ok else EXIT_FAILED


def _refuse_target(mode: str, options: RunOptions) -> None:
    """Refuse an arch or a device where the mode runs on what this machine has."""
    for flag in ("arch", "device"):
        if mode != "static" and getattr(options, flag) is not None:
            raise UsageError(
                f"--{flag} is for --prof_type=static; mode {mode} takes what this machine has"
            )


def dense(console: Console, text: str) -> None:
    """Print Markdown without blank lines, so that it fits a screen."""
    with console.capture() as kept:
        console.print(Markdown(text))
    for line in kept.get().splitlines():
        if Text.from_ansi(line).plain.strip():
            console.file.write(f"{line}\n")


def wrote(result: ProfileResult) -> Iterator[str]:
    """What a run left: the records, then its folder."""
    yield from (f"record {path}" for path in braced(result.record_paths))
    if result.report:
        yield f"wrote {relative(result.report.parent)}/: report.md, report.html" + (
            f", {len(result.files)} more files" if result.files else ""
        )


def braced(paths: Iterable[Path]) -> list[str]:
    """Records as a shell writes them: those of a run that differ in the arch only share a line."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        *top, arch, package, layer, design, name = Path(relative(path)).parts
        groups.setdefault((*top, "", package, layer, design, name), []).append(arch)
    return [
        str(Path(*(part or (f"{{{','.join(archs)}}}" if len(archs) > 1 else archs[0])
                   for part in key)))
        for key, archs in groups.items()
    ]  # fmt: skip


class Advice:
    """What the screen says beside a run's own records.

    Args:
        version: The version.
        plan: What was asked for.
    """

    def __init__(self, version: Version, plan: KernelPlan) -> None:
        self.version, self.plan = version, plan
        #: The steps that were found last, a line each.
        self.brief: list[str] = []

    @functools.cached_property
    def _catalogue(self) -> Catalogue:
        from mla_var3 import knowledge

        return knowledge.load_all()

    def _standing(self, made: Sequence[Record]) -> Standing:
        from mla_var3.knowledge import standing

        return standing.of(self.version, self.plan.problem(), self._catalogue.index, made)

    def known(self, made: Sequence[Record]) -> list[tuple[str, str]]:
        """What the records say of the version."""
        from mla_var3.knowledge import deciding, standing

        found = self._standing(made)
        verdicts = self._verdicts(made, found.measured)
        known = [each for each in verdicts if each[0] != deciding.MEASURE]
        return [*standing.facts(found), *known]

    def _verdicts(self, made: Sequence[Record], measured: Record | None) -> list[tuple[str, str]]:
        from mla_var3.knowledge import deciding

        return deciding.verdicts(made if measured is None else [measured], self._catalogue)

    def steps(self, made: Sequence[Record]) -> list[str]:
        """What to try next, as lines of a report: where it was measured, and elsewhere.

        Where no page is certain it is the measurement that decides between those that are open.
        """
        from mla_var3.knowledge import deciding, matching

        measured = self._standing(made).measured
        found = [measured] if measured is not None else []
        found += [record for record in made if not measured or record.target != measured.target]
        steps = matching.steps(found, self._catalogue, ADVICE)
        verdicts = self._verdicts(made, measured)
        asked = [said for name, said in verdicts if name == deciding.MEASURE]
        self.brief = [*(step.brief for step in steps), *asked][:ADVICE]
        return [*map(str, steps), *asked][:ADVICE]


def has_gpu() -> bool:
    """Whether torch sees a GPU."""
    import torch

    return torch.cuda.is_available()


def mode_of(version: Version, options: RunOptions, say: Callable[[str], None]) -> str:
    """The mode that was asked for, else the most telling one that runs here; says if it is less."""
    if options.prof_type is not None:
        return options.prof_type
    if not has_gpu():
        if languages.find(version.language).archs:
            return "static"
        say(f"no GPU, and {version.language} compiles nothing: --prof_type=disabled --check")
        return "disabled"
    from mla_var3.profiling import annotation

    if (lacking := annotation.missing()) is not None:
        say(f"{lacking}: timing without counters, as --prof_type=event does")
        return "event"
    return "annotation"


def settings_of(version: Version, options: RunOptions, mode: str) -> dict[str, Any]:
    """What the mode is called with."""
    names = ("out_dir", "bench_runs", "no_autotune", "retune", "tune_max_iters")
    found = {name: getattr(options, name) for name in names}
    found["version"] = version
    if mode == "disabled":
        found["check"] = options.check
    if mode == "static":
        found |= static_settings(version, options)
    return found


def static_settings(version: Version, options: RunOptions) -> dict[str, Any]:
    """Archs and device of mode static.

    Raises:
        UnknownNameError: There is no such arch or device.
        PlanError: The device is not of one of the archs.
    """
    from mla_var3.profiling.static import parse_archs

    archs = None if options.arch is None else parse_archs(options.arch, version.language)
    device = devices.find(options.device) if options.device else None
    if device is not None:
        arch = device.compile_arch
        if archs is None:
            archs = (arch,)
        elif arch not in archs:
            raise PlanError(f"--device {device.key} is {arch}, which --arch {options.arch} lacks")
    return {"archs": archs, "device": device}


def _require_writable(folder: Path) -> None:
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not there.is_dir():
        raise ToolchainError(f"nothing can be written to {folder}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ToolchainError(f"nothing can be written to {folder}: {there} does not allow it")
