"""Compiles a version's cases without a GPU and returns the fingerprints of their launches.

Each language's module ``fingerprint`` reads one launch; ``app.building`` keeps the results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mla_var3 import devices, evidence, languages
from mla_var3.errors import HyperMlaError, PlanError
from mla_var3.evidence import Fingerprint
from mla_var3.evidence.builds import Case, Compiled
from mla_var3.languages.base import CompileJob
from mla_var3.languages.stage_facts import Progress
from mla_var3.runtime.kernel import Kernel, RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version
from mla_var3.runtime.tiling import Tiling


def bound(version: Version, case: Case) -> RuntimeObject:
    """The version's launches of a case, on tensors without memory.

    Fields that the version does not have (any more) are passed over: what then differs shows in
    the fingerprint.

    Raises:
        HyperMlaError: The version does not take its problem or its tilings.
    """
    kind = version.plan_class()
    known = {field.name for field in kind.option_fields()}
    given: dict[str, Any] = {k: v for k, v in case.problem.items() if k in known}
    plan = kind(**given)
    plan = plan.resolve(device_of(case).machine(plan.dtype))
    plan.validate()
    obj = plan.plan(*plan.prepare_inputs("meta"))
    return obj if not case.tilings else _retiled(plan, obj, case)


def device_of(case: Case) -> devices.Device:
    """The device of a case, or the one that stands for its arch."""
    if case.device.startswith(evidence.STATIC):
        return devices.default_for_arch(case.device.removeprefix(evidence.STATIC))
    return devices.find(case.device)


def _retiled(plan: KernelPlan, obj: RuntimeObject, case: Case) -> RuntimeObject:
    """Copies of the launches under the tilings of a case, matched by order."""
    stages = [kernel for _, kernel in obj.stages()]
    if len(stages) != len(case.tilings):
        raise PlanError(f"it has {len(stages)} stages, and the case {len(case.tilings)}")
    tilings = {
        kernel.name: _tiling(type(kernel.tiling), values)
        for kernel, values in zip(stages, case.tilings, strict=True)
    }
    plan = dataclasses.replace(plan, tilings=tilings)
    return plan.plan(*plan.prepare_inputs("meta"))


def _tiling(kind: type[Tiling], values: Mapping[str, Any]) -> Tiling:
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in known})


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
) -> list[Compiled]:
    """Fingerprints of a version's cases, or why one has none.

    Args:
        version: The version.
        cases: The cases.
        workers: Compilers at a time; the number of cores by default.
        cache_dir: Cache folder; the user's by default.
        progress: Told of each compile as it ends.

    Raises:
        ToolchainError: The compiler is missing.
    """
    found = [_stages(version, case) for case in cases]
    jobs = [
        CompileJob(kernel, device_of(case).sm)
        for case, stages in zip(cases, found, strict=True)
        if not isinstance(stages, str)
        for _, kernel in stages
    ]
    made = iter(
        languages.find(version.language).fingerprints(
            jobs,
            workers=workers,
            cache_dir=cache_dir,
            progress=lambda _, facts: progress(f"{facts.kernel} {facts.arch}"),
        )
    )
    results: list[Compiled] = []
    for case, stages in zip(cases, found, strict=True):
        if isinstance(stages, str):
            results.append(Compiled(case=case, error=stages))
        else:
            results.append(_compiled(case, {name: next(made) for name, _ in stages}))
    return results


def _compiled(case: Case, stages: Mapping[str, Fingerprint | str]) -> Compiled:
    if refused := [one for one in stages.values() if isinstance(one, str)]:
        return Compiled(case=case, error=refused[0])
    return Compiled.model_validate({"case": case, "stages": stages})


def _stages(version: Version, case: Case) -> list[tuple[str, Kernel]] | str:
    """The stages of a case; or why it has none that compile for its arch."""
    try:
        stages = bound(version, case).stages()
    except HyperMlaError as error:
        return str(error)
    except (TypeError, ImportError, AttributeError) as error:  # Of sources that knew older tools.
        return f"{type(error).__name__}: {error}"
    arch = device_of(case).sm
    for _, kernel in stages:
        language = languages.find(kernel.language)
        if (reason := language.cannot_compile(arch) or language.refuses(kernel, arch)) is not None:
            return reason
    return stages


def toolchain(version: Version) -> dict[str, str]:
    """Versions of the tools that compile a version here; none where a library brings its code."""
    found: dict[str, str] = {}
    if not languages.find(version.language).archs:
        return found
    for name in languages.find(version.language).tools:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
