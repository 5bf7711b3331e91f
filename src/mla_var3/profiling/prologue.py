"""Shared frame of the timing modes: times a plan, calls the mode's profiler, writes the report.

The profiler is left out where timing failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mla_var3 import evidence
from mla_var3.paths import write_atomic
from mla_var3.profiling import binding, counted, folders, gpu_lock, page, report, running
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import ProfileResult, Settings
from mla_var3.runtime.plan import KernelPlan

ROOFLINE = "roofline_metrics.csv"


@dataclass(frozen=True)
class Run:
    """A version that was timed and is now to be looked at closer.

    Attributes:
        job: The version and its plan, all tilings fixed.
        outcome: What timing it gave.
        folder: Where to leave files.
    """

    job: Job
    outcome: evidence.Passed
    folder: Path


@dataclass(frozen=True)
class Observed:
    """What a profiler adds to the times.

    Attributes:
        counters: Values by stage path and counter name.
        toolchain: Further tools with their versions.
    """

    counters: Mapping[str, Mapping[str, float]]
    toolchain: Mapping[str, str] = field(default_factory=dict)


Collect = Callable[[Run], Observed]


def profile(
    mode: evidence.Mode, plan: KernelPlan, settings: Settings, collect: Collect | None = None
) -> ProfileResult:
    """Time ``plan``; unless that failed, let ``collect`` look closer; write records and report.

    Args:
        mode: The mode.
        plan: What to run.
        settings: How.
        collect: What the mode does beyond timing; its files go to the run's folder.

    Raises:
        ToolchainError: There is no GPU, or the profiler refuses.
    """
    binding.require_gpu(mode)
    job = Job.of(plan, settings)
    with gpu_lock.held(job.say):
        return _profile(mode, job, collect)


def _profile(mode: evidence.Mode, job: Job, collect: Collect | None) -> ProfileResult:
    bound, timed = running.timed(binding.on_gpu(job))
    settings = job.settings
    written = [evidence.write(timed, settings.results)[0]]
    slug = bound.plan.slug()
    with folders.new_folder(job.version, mode, slug, settings.out_dir) as folder:
        made = timed
        if collect is not None and isinstance(timed.outcome, evidence.Passed):
            observed = collect(Run(bound, timed.outcome, folder))
            made = _with(timed, timed.outcome, mode, observed, folder, settings)
            written.append(evidence.write(made, settings.results)[0])
        return finish([made], written, folder, settings)


def _with(
    timed: evidence.Record,
    outcome: evidence.Passed,
    mode: evidence.Mode,
    observed: Observed,
    folder: Path,
    settings: Settings,
) -> evidence.Record:
    stages = [
        stage.model_copy(update={"counters": dict(observed.counters.get(stage.name, {}))})
        for stage in outcome.stages
    ]
    artefacts = folders.below_out(folders.files(folder), settings.out_dir)
    outcome = outcome.model_copy(update={"stages": stages, "artefacts": artefacts})
    toolchain = {**timed.toolchain, **observed.toolchain}
    return timed.model_copy(update={"mode": mode, "outcome": outcome, "toolchain": toolchain})


def finish(
    made: Sequence[evidence.Record], written: Sequence[Path], folder: Path, settings: Settings
) -> ProfileResult:
    """Write the report, and as a page, into the run's folder and name all that was written.

    What a profiler counted goes there too, beside the roofline.
    """
    places = [place for record in made for place in counted.places(record)]
    if beside := counted.roofline_csv(places):
        write_atomic(folder / ROOFLINE, beside)
    passed = [r for r in made if isinstance(r.outcome, evidence.Passed)]
    steps = tuple(settings.advise(passed)) if passed else ()
    known = tuple(settings.known(made))
    files = tuple(folders.files(folder))
    path = folder / "report.md"
    write_atomic(path, report.render(made, steps, [*written, *files], known=known))
    write_atomic(path.with_suffix(".html"), page.render(made, steps, [*written, *files], known))
    return ProfileResult(tuple(made), tuple(dict.fromkeys(written)), files, path, steps, known)
