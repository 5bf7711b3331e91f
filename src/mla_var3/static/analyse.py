"""Facts of every stage of a runtime object, for as many archs as asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mla_var3.errors import ToolchainError
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.static.compile import TIMEOUT_S, CompileJob, compile_many, write_artefacts
from mla_var3.static.facts import StaticFacts
from mla_var3.static.toolchain import known_archs

__all__ = ["analyse", "known_archs"]


def analyse(
    obj: RuntimeObject,
    archs: Sequence[str],
    *,
    artefacts: Path | None = None,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float = TIMEOUT_S,
    refused_ok: bool = False,
    progress: Callable[[str], None] = lambda _text: None,
) -> dict[str, dict[str, StaticFacts]]:
    """Compile all stages under their present tilings, side by side.

    Args:
        obj: Bound to tensors of the full size; meta tensors do.
        archs: Such as ``["sm_90", "sm_100"]``.
        artefacts: Folder for what the compiler made, ``<stage>/`` for one arch and
            ``<arch>/<stage>/`` for several; nothing is written by default.
        workers: Compilers at a time; the number of cores by default.
        cache_dir: Cache folder, as for :func:`mla_var3.static.compile.compile_kernel`.
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
    results = compile_many(
        [CompileJob(kernel.kernel, kernel.args(), arch) for arch, _, kernel in places],
        workers=workers,
        cache_dir=cache_dir,
        timeout=timeout,
        progress=lambda job, facts: progress(summary(facts)),
    )
    found: dict[str, dict[str, StaticFacts]] = {arch: {} for arch in archs}
    for (arch, path, _), result in zip(places, results, strict=True):
        if result.facts.error is not None and not refused_ok:
            raise ToolchainError(f"{path} does not compile for {arch}: {result.facts.error}")
        found[arch][path] = result.facts
        if artefacts is not None:
            write_artefacts(
                result, artefacts / path if len(archs) == 1 else artefacts / arch / path
            )
    return found


def summary(facts: StaticFacts) -> str:
    """One line for people: registers, stack, spills, shared memory, MMA path, occupancy."""
    head = f"{facts.kernel} {facts.arch}"
    if facts.error is not None:
        return f"{head}: {facts.error}"
    text = (
        f"{head}: {facts.registers} registers, {facts.stack_bytes} B stack, "
        f"{facts.spill_loads} LDL + {facts.spill_stores} STL, {facts.shared_bytes} B shared, "
        f"{facts.warps_per_block} warps, MMA {facts.mma_path}"
    )
    if facts.occupancy is not None:
        text += f", {facts.occupancy.blocks_per_sm} block(s) an SM ({facts.occupancy.limiter})"
    return text
