"""Mode ``static``: checks a version on the CPU and compiles it for archs, without a GPU."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mla_var3 import devices, evidence, languages
from mla_var3.errors import (
    DeviceFigureError,
    NotExecutableError,
    ToolchainError,
    UnknownNameError,
)
from mla_var3.languages import Compiled, CompileJob, ranking
from mla_var3.languages.stage_facts import compile_jobs, write_artefacts
from mla_var3.paths import relative, write_atomic
from mla_var3.profiling import folders, prologue, recording
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import ProfileResult, Settings
from mla_var3.runtime.check import CaseResult, check_plan
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.tiling import tiling_text

#: The size that was asked for is checked where it takes the CPU no longer, and its tensors no more.
ASKED_WITHIN_S = 30.0
ASKED_BYTES = 1 << 30


@dataclass
class _Target:
    """One arch: the job with the plan made for its device, and what came of it."""

    arch: str
    job: Job
    obj: RuntimeObject
    skipped: str | None
    compiled: dict[str, Compiled] = dataclasses.field(default_factory=dict)
    case: CaseResult | None = None


def parse_archs(text: str | None, language: str) -> tuple[str, ...]:
    """Archs of a comma-separated list, in order and once each; the language's own when None.

    Raises:
        UnknownNameError: An arch that the language's compiler does not know.
    """
    spoken = languages.find(language)
    if text is None:
        return spoken.archs
    known = list(spoken.known_archs())
    archs = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for arch in archs:
        if arch not in known:
            raise UnknownNameError("arch", arch, known)
    return tuple(archs)


def static_profile_plan(
    plan: KernelPlan,
    *,
    archs: Sequence[str] | None = None,
    device: devices.Device | None = None,
    **settings: Any,
) -> ProfileResult:
    """Run ``plan`` small on the CPU, compile it at full size, and record both for each arch.

    Args:
        plan: What was asked for; open sizes are resolved for each arch's device.
        archs: Archs such as ``sm_90``; by default those of the language's own that the version can
            be compiled for.
        device: Device to resolve for where its arch is among ``archs``.
        settings: Fields of :class:`mla_var3.profiling.settings.Settings`; ``retune`` compiles the
            configured tilings and takes the one that ranks first.

    Raises:
        ToolchainError: A compiler is missing, or the language does not compile.
        DeviceFigureError: A figure of a device is UNKNOWN.
    """
    job = Job.of(plan, Settings(**settings), device)
    asked = job.language.archs if archs is None else tuple(archs)
    if not asked:
        raise ToolchainError(
            f"{job.version.language} compiles nothing, so there is nothing static to know of "
            f"{job.version.key}; --prof_type=disabled --check runs it"
        )
    targets = [_target(job, arch) for arch in asked]
    _compile(job, targets)
    if archs is None:  # Nobody asked for the others, so that they are neither rows nor records.
        targets = [one for one in targets if one.skipped is None] or targets
    _check(job, targets)
    out = job.settings.out_dir
    with folders.new_folder(job.version, "static", plan.slug(), out) as folder:
        made = [_record(target, folder / target.arch) for target in targets]
        written = [_write(record, job) for record in made]
        return prologue.finish(made, written, folder, job.settings)


def observed(
    plan: KernelPlan, arch: str, settings: Settings, device: devices.Device | None = None
) -> evidence.Record:
    """The record of one arch, not yet written; without ``settings.check`` nothing is run.

    Args:
        plan: What was asked for.
        arch: Such as ``sm_90``.
        settings: How.
        device: Device to resolve for.
    """
    job = Job.of(plan, settings, device)
    target = _target(job, arch)
    if target.skipped is None:
        _compile(job, [target])
        if settings.check:
            _check(job, [target])
    return recording.make(target.job, "static", f"static/{arch}", _outcome(target))


def device_for(arch: str, asked: devices.Device | None) -> devices.Device | None:
    """The device that a plan is resolved for; None when no file describes one of the arch."""
    if asked is not None and asked.sm == arch:
        return asked
    try:
        return devices.default_for_arch(arch)
    except (UnknownNameError, DeviceFigureError):
        return None


def resolved(plan: KernelPlan, arch: str, device: devices.Device | None) -> KernelPlan:
    """``plan`` with its open sizes filled in for the arch's device, validated."""
    chosen = device_for(arch, device)
    if chosen is not None:
        plan = plan.resolve(chosen.machine(plan.dtype))
    plan.validate()
    return plan


def _target(job: Job, arch: str) -> _Target:
    device = device_for(arch, job.device)
    job = job.with_(resolved(job.plan, arch, job.device), device)
    obj = _shape(job)
    skipped = _refused(obj, arch)
    if job.settings.retune and skipped is None:
        job = job.with_(retuned(job, arch))
        obj = _shape(job)
    for _, kernel in obj.stages():
        kernel.grid()  # What CUDA could not launch is refused before minutes of work.
    return _Target(arch, job, obj, skipped)


def _shape(job: Job) -> RuntimeObject:
    """The kernels of a job, without memory behind their tensors."""
    return job.plan.plan(*job.plan.prepare_inputs("meta"))


def _refused(obj: RuntimeObject, arch: str) -> str | None:
    """Why nothing is compiled for an arch: there is no compiler, or a kernel does not fit."""
    for _, kernel in obj.stages():
        language = languages.find(kernel.language)
        reason = language.cannot_compile(arch) or language.refuses(kernel, arch)
        if reason is not None:
            return reason
    return None


def retuned(job: Job, arch: str) -> KernelPlan:
    """The job's plan with the tilings that rank first by what the compiler makes of them."""
    plan, obj = job.plan, _shape(job)
    tilings = dict(plan.tilings)
    for path, kernel in obj.stages():
        if kernel.name in plan.tilings:
            continue
        found = ranking.rank(kernel, arch, limit=job.settings.tune_max_iters, progress=job.say)
        for tiling, reason in found.pruned:
            job.say(f"{arch} {path}: pruned {tiling_text(tiling.values())}: {reason}")
        if found.best is not None:
            tilings[kernel.name] = found.best
            job.say(f"{arch} {path}: chose {tiling_text(found.best.values())}")
    return dataclasses.replace(plan, tilings=tilings)


def _compile(job: Job, targets: Sequence[_Target]) -> None:
    """Compile every stage for every arch at once, so that no core idles."""
    wanted = [t for t in targets if t.skipped is None]
    places = [(t, path, kernel) for t in wanted for path, kernel in t.obj.stages()]
    for target in targets:
        if target.skipped is not None:
            job.say(f"{target.arch} is skipped: {target.skipped}")
    if wanted:
        job.say(f"compiling {job.version.key} for {', '.join(t.arch for t in wanted)}")
    jobs = [CompileJob(kernel, target.arch) for target, _, kernel in places]
    for (target, path, _), made in zip(places, compile_jobs(jobs, progress=job.say), strict=True):
        target.compiled[path] = made


def _check(job: Job, targets: Sequence[_Target]) -> None:
    """Run each problem on the CPU, once for all archs that have the same one.

    It runs small first; then at the size that was asked for, where that takes no longer than
    ``ASKED_WITHIN_S`` by what the small one took.
    """
    done: dict[str, CaseResult | None] = {}
    for target in targets:
        if target.skipped is not None:
            continue
        small = target.job.plan.shrunk()
        # What the device changes (how many blocks share the work) is not worth a second run.
        key = repr(dataclasses.replace(small, machine=None))
        if key not in done:
            started = time.monotonic()
            case = _run(job.with_(small))
            within = _seconds(target.job.plan, small, time.monotonic() - started)
            if case is not None and case.ok and 0 < within <= ASKED_WITHIN_S:
                case = _run(target.job)
            done[key] = case
        target.case = done[key]


def _seconds(asked: KernelPlan, small: KernelPlan, took: float) -> float:
    """How long a problem takes the CPU, by a smaller one; 0 where it is that one."""
    if asked.problem() == small.problem():
        return 0.0
    work, less = asked._algorithmic_flops_bytes(), small._algorithmic_flops_bytes()
    if work.bytes > ASKED_BYTES:
        return math.inf
    return took * max(work.flops / max(less.flops, 1), work.bytes / max(less.bytes, 1))


def _run(job: Job) -> CaseResult | None:
    reason = job.language.cannot_execute()
    if reason is None:
        job.say(f"running {job.version.key} on the CPU at {job.plan.slug()}")
        try:
            return check_plan(job.plan)
        except NotExecutableError as error:
            reason = str(error)
    job.say(f"not checked: {reason}")
    return None


def _record(target: _Target, folder: Path) -> evidence.Record:
    outcome = _outcome(target)
    if isinstance(outcome, evidence.Passed):
        _write_files(target, folder)
    return recording.make(target.job, "static", f"static/{target.arch}", outcome)


def _outcome(target: _Target) -> evidence.Outcome:
    if target.skipped is not None:
        return evidence.Skipped(reason=target.skipped)
    case = target.case
    checked = recording.correctness([case], "torch fp32 on the CPU") if case is not None else None
    if case is not None and not case.ok:
        return evidence.Failed(error=case.explain(), correctness=checked)
    for path, made in target.compiled.items():
        if made.facts.error is not None:
            said = f"does not compile for {target.arch}: {made.facts.error}"
            return evidence.Failed(error=said, stage=path, correctness=checked)
    return recording.passed(target.obj, correctness=checked, compiled=target.compiled)


def _write(record: evidence.Record, job: Job) -> Path:
    """Write a record."""
    path, changed = evidence.write(record, job.settings.results)
    if not changed:
        job.say(f"unchanged {relative(path)}")
    return path


def _write_files(target: _Target, folder: Path) -> None:
    """params.json, tiling/<stage>.json, and what the compiler made in compiled/<stage>/."""
    _write_json(folder / "params.json", target.job.plan.problem())
    for path, kernel in target.obj.stages():
        _write_json(folder / "tiling" / f"{path}.json", kernel.tiling.values())
    for path, made in target.compiled.items():
        write_artefacts(made.files, folder / "compiled" / path)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomic(path, json.dumps(content, indent=1) + "\n")
