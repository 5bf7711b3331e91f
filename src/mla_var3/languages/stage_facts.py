"""Compiles every stage of a runtime object and returns its facts, whatever its language."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mla_var3 import languages
from mla_var3.errors import HyperMlaError, ToolchainError
from mla_var3.evidence import StaticFacts
from mla_var3.languages.base import Compiled, CompileJob
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.static.occupancy import of_facts

Progress = Callable[[str], None]


def compile_jobs(
    jobs: Sequence[CompileJob],
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float | None = None,
    progress: Progress = lambda _text: None,
) -> list[Compiled]:
    """Compile kernels, those of one language side by side; results in the order of the jobs."""
    results: dict[int, Compiled] = {}
    by_language: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        by_language.setdefault(job.kernel.language, []).append(index)
    for key, indices in by_language.items():
        made = languages.find(key).compile_many(
            [jobs[i] for i in indices],
            workers=workers,
            cache_dir=cache_dir,
            timeout=timeout,
            progress=lambda _job, facts: progress(summary(facts)),
        )
        results.update(zip(indices, made, strict=True))
    return [results[i] for i in range(len(jobs))]


def analyse(
    obj: RuntimeObject,
    archs: Sequence[str],
    *,
    artefacts: Path | None = None,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float | None = None,
    refused_ok: bool = False,
    progress: Progress = lambda _text: None,
) -> dict[str, dict[str, StaticFacts]]:
    """Compile all stages under their present tilings, side by side.

    Args:
        obj: Bound to tensors of the full size; meta tensors do.
        archs: Such as ``["sm_90", "sm_100"]``.
        artefacts: Folder for what the compiler made, ``<stage>/`` for one arch and
            ``<arch>/<stage>/`` for several; nothing is written by default.
        workers: Compilers at a time; the number of cores by default.
        cache_dir: Cache folder; ``$HYPERMLA_CACHE_DIR`` or the user's cache folder by default.
        timeout: Seconds each compile may take.
        refused_ok: Return the facts of a kernel that does not compile, with their ``error``,
            instead of raising.
        progress: Told of each compile as it ends.

    Returns:
        Facts by arch, then by stage path, both in the order asked.

    Raises:
        ToolchainError: A tool is missing, or (unless ``refused_ok``) refuses a kernel.
        UnknownNameError: An arch that the compiler does not know.
    """
    places = [(arch, path, kernel) for arch in archs for path, kernel in obj.stages()]
    results = compile_jobs(
        [CompileJob(kernel, arch) for arch, _, kernel in places],
        workers=workers, cache_dir=cache_dir, timeout=timeout, progress=progress,
    )  # fmt: skip
    found: dict[str, dict[str, StaticFacts]] = {arch: {} for arch in archs}
    for (arch, path, _), result in zip(places, results, strict=True):
        if result.facts.error is not None and not refused_ok:
            raise ToolchainError(f"{path} does not compile for {arch}: {result.facts.error}")
        found[arch][path] = result.facts
        if artefacts is not None:
            folder = artefacts / path if len(archs) == 1 else artefacts / arch / path
            write_artefacts(result.files, folder)
    return found


def write_artefacts(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write what a compiler made to a folder.

    Each file is replaced whole, so an interrupt leaves either the old or the new one.

    Raises:
        HyperMlaError: The folder cannot be written.
    """
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            target = folder / name
            staged = folder / f".{name}.{os.getpid()}"
            try:
                staged.write_bytes(content)
                staged.replace(target)
            finally:
                staged.unlink(missing_ok=True)
            paths.append(target)
    except OSError as error:
        raise HyperMlaError(f"{folder} cannot be written: {error.strerror}") from error
    return paths


def summary(facts: StaticFacts) -> str:
    """One line of a screen for people: registers, spills, MMA path, occupancy; records say all."""
    head = f"{facts.kernel} {facts.arch}"
    if facts.error is not None:
        return f"{head}: {facts.error}"
    spills = f"{facts.spill_instructions:,} spills" if facts.spills else "no spills"
    path = f"MMA {facts.mma_path}" + (", serialized wgmma" if facts.serialized else "")
    text = f"{head}: {facts.registers} registers, {spills}, {path}"
    if (held := of_facts(facts)) is not None:
        text += f", {held.blocks_per_sm} block(s) per SM ({held.limiter})"
    return text
