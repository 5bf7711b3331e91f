"""The modes that need a GPU, behind one function for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mla_var3 import records
from mla_var3.paths import out_dir as default_out_dir
from mla_var3.paths import write_atomic
from mla_var3.profiling import annotation, event, ncu, nsys, report
from mla_var3.profiling.event import ProfileResult
from mla_var3.runtime.autotune import Progress
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version

if TYPE_CHECKING:
    from mla_var3.app.options import RunOptions

TIMED = {
    "event": event.event_profile_plan,
    "annotation": annotation.annotation_profile_plan,
    "ncu": ncu.ncu_profile_plan,
    "nsys": nsys.nsys_profile_plan,
}


@dataclass(frozen=True)
class ModeResult:
    """What the command line prints and the paths it names."""

    summary: str
    paths: tuple[Path, ...]
    ok: bool


def profile(
    version: Version, plan: KernelPlan, options: RunOptions, mode: str, progress: Progress
) -> ModeResult:
    """Run ``plan`` in ``mode`` on the GPU and write record and report.

    Args:
        version: The version.
        plan: Its plan.
        options: The run options.
        mode: ``disabled``, ``event``, ``annotation``, ``ncu`` or ``nsys``.
        progress: Told what happens.

    Raises:
        ToolchainError: There is no GPU, or the mode's profiler is missing.
    """
    event.require_gpu(mode)
    result: ProfileResult
    if mode == "disabled":
        result = event.run_disabled(plan, version=version, check=options.check)
    else:
        result = TIMED[mode](
            plan,
            version=version,
            artefacts=options.out_dir,
            bench_runs=options.bench_runs,
            no_autotune=options.no_autotune,
            retune=options.retune,
            tune_max_iters=options.tune_max_iters,
            progress=progress,
        )
    folder = (options.out_dir or default_out_dir()) / version.design / version.version / mode
    steps = []
    if isinstance(result.record.outcome, records.Passed):
        from mla_var3 import knowledge

        steps = knowledge.next_steps([result.record], top=3)
    text = report.render([result.record], steps, [str(p) for p in result.paths])
    write_atomic(folder / "report.md", text)
    return ModeResult(
        report.render([result.record], steps, brief=True),
        (*result.paths, folder / "report.md"),
        isinstance(result.record.outcome, records.Passed),
    )
