"""Fingerprints of a version's launches: a case bound, compiled and read, without a GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

from mla_var3 import devices, languages
from mla_var3.errors import HyperMlaError, ToolchainError
from mla_var3.evidence.builds import Case, Compiled
from mla_var3.languages.base import CompileJob
from mla_var3.languages.compiling import Progress, compile_jobs
from mla_var3.runtime.kernel import Kernel, RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version


def bound(version: Version, case: Case) -> RuntimeObject:
    """The version's launches of a case, on tensors without memory.

    Raises:
        HyperMlaError: The version does not take its problem or its tilings.
    """
    plan = version.plan_of(case.problem)
    plan = plan.resolve(devices.find(case.device).machine(plan.dtype))
    plan.validate()
    obj = plan.plan(*plan.prepare_inputs("meta"))
    return obj if not case.tilings else _retiled(plan, obj, case)


def _retiled(plan: KernelPlan, obj: RuntimeObject, case: Case) -> RuntimeObject:
    """The same launches under the case's tilings, which are told apart by their order."""
    stages = [kernel for _, kernel in obj.stages()]
    if len(stages) != len(case.tilings):
        raise ToolchainError(f"it has {len(stages)} stages, and the case {len(case.tilings)}")
    try:
        tilings = {
            kernel.name: type(kernel.tiling)(**values)
            for kernel, values in zip(stages, case.tilings, strict=True)
        }
    except TypeError as error:
        raise ToolchainError(f"its tilings have other fields: {error}") from error
    plan = dataclasses.replace(plan, tilings=tilings)
    return plan.plan(*plan.prepare_inputs("meta"))


def case_of(plan: KernelPlan, device: str, obj: RuntimeObject) -> Case:
    """The case that a bound plan is."""
    tilings = tuple(kernel.tiling.values() for _, kernel in obj.stages())
    return Case(device=device, problem=plan.problem(), tilings=tilings)


def compiled(
    version: Version,
    cases: Sequence[Case],
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    progress: Progress = lambda _text: None,
) -> list[Compiled | str]:
    """Fingerprints of a version's cases; for one that cannot be made, why.

    Args:
        version: The version.
        cases: The cases.
        workers: Compilers at a time; the number of cores by default.
        cache_dir: Cache folder; the user's by default.
        progress: Told of each compile as it ends.

    Raises:
        ToolchainError: The compiler is missing.
    """
    found: list[list[tuple[str, Kernel]] | str] = [_stages(version, case) for case in cases]
    archs = [devices.find(case.device).sm for case in cases]
    jobs = [
        CompileJob(kernel, arch)
        for stages, arch in zip(found, archs, strict=True)
        if not isinstance(stages, str)
        for _, kernel in stages
    ]
    made = iter(compile_jobs(jobs, workers=workers, cache_dir=cache_dir, progress=progress))
    results: list[Compiled | str] = []
    for case, stages in zip(cases, found, strict=True):
        if isinstance(stages, str):
            results.append(stages)
            continue
        rows = [(name, kernel, next(made)) for name, kernel in stages]
        failed = next((one.facts.error for _, _, one in rows if one.facts.error), None)
        results.append(failed or _read(case, rows))
    return results


def _stages(version: Version, case: Case) -> list[tuple[str, Kernel]] | str:
    """The stages of a case; or why it has none that compile for its arch."""
    try:
        stages = bound(version, case).stages()
    except HyperMlaError as error:
        return str(error)
    arch = devices.find(case.device).sm
    for _, kernel in stages:
        language = languages.find(kernel.language)
        if (reason := language.cannot_compile(arch) or language.refuses(kernel, arch)) is not None:
            return reason
    return stages


def _read(case: Case, rows: Sequence[tuple[str, Kernel, languages.Compiled]]) -> Compiled:
    stages = {
        name: languages.find(kernel.language).fingerprint(kernel, one) for name, kernel, one in rows
    }
    return Compiled(case=case, stages=stages)


def toolchain(version: Version) -> dict[str, str]:
    """Versions of the tools that compile a version's language."""
    found = {}
    for name in languages.find(version.language).tools:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
