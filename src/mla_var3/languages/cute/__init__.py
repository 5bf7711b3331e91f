"""Language ``cute-dsl``: compiles, emulates and exports CuTe DSL kernels behind ``Language``."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mla_var3.evidence import Fingerprint, StaticFacts
from mla_var3.languages.base import (
    Choices,
    Compiled,
    CompileJob,
    Language,
    Mutant,
    StageMetric,
    Tile,
)
from mla_var3.languages.cute.levers import LEVERS

if TYPE_CHECKING:
    from mla_var3.runtime.kernel import Kernel

_KEY = "cute-dsl"
_metric = functools.partial(StageMetric.of_fact, _KEY)


class _Cute:
    key = _KEY
    package = "cute_python"
    title = "CuTe DSL"
    archs: tuple[str, ...] = ("sm_90", "sm_100", "sm_120")
    tools: tuple[str, ...] = ("nvidia-cutlass-dsl", "nvidia-cuda-nvcc")
    hints: tuple[str, ...] = ()
    #: Compiling and lowering a problem's PTX takes some ten seconds before anything runs.
    cpu_builds: int | None = 2
    metrics: tuple[StageMetric, ...] = (
        _metric("pipeline_stages", "", None, "Barriers of the deepest ring of TMA loads."),
        _metric("ring_depth", "", None, "Steps in flight: places of the deepest ring of loads."),
        _metric("tma_multicast", "instructions", None, "TMA loads that write to several blocks."),
        _metric("mbarriers", "", None, "Barriers in shared memory that the kernel sets up."),
        _metric("wgmma_waits", "instructions", None, "Waits for warpgroup multiplications."),
        _metric(
            "register_moves", "instructions", None,
            "Instructions by which warps give registers up or take them (setmaxnreg).",
        ),
        _metric(
            "operand_swizzle", "bytes", "higher",
            "Narrowest swizzle of the tiles that warpgroups multiply; 0 for none.",
        ),
        _metric("waits_per_wgmma", "", "lower", "Waits for warpgroup multiplications, per one."),
        _metric(
            "wgmma_serialized", "", "lower",
            "Whether the assembler waits for each warpgroup multiplication before the next.",
        ),
    )  # fmt: skip
    levers: Mapping[str, str] = LEVERS

    def known_archs(self) -> tuple[str, ...]:
        from mla_var3.languages.cute import arch

        return tuple(arch.TARGETS)

    def cannot_compile(self, arch: str) -> str | None:
        from mla_var3.languages.cute import arch as archs
        from mla_var3.languages.cute import toolchain

        archs.key(arch)
        return toolchain.missing()

    def refuses(self, kernel: Kernel, arch: str) -> str | None:
        from mla_var3.languages.cute import jobs
        from mla_var3.languages.cute.compile import refusal

        return refusal(jobs.require_cute(kernel).host()[0], arch)

    def cannot_execute(self) -> str | None:
        from mla_var3.languages.cute import emulation

        return emulation.cannot_execute()

    def compile_many(
        self,
        jobs: Sequence[CompileJob],
        *,
        workers: int | None = None,
        cache_dir: Path | None = None,
        timeout: float | None = None,
        progress: Callable[[CompileJob, StaticFacts], None] = lambda _job, _facts: None,
    ) -> list[Compiled]:
        from mla_var3.languages.cute import jobs as compiler
        from mla_var3.languages.cute.fingerprint import launch_of

        made = compiler.compile_jobs(
            jobs, workers=workers, cache_dir=cache_dir, timeout=timeout, progress=progress
        )
        return [
            replace(one, grid=launch_of(job.kernel, one.files).grid) if one.facts.ok else one
            for job, one in zip(jobs, made, strict=True)
        ]

    def fingerprints(
        self,
        jobs: Sequence[CompileJob],
        *,
        workers: int | None = None,
        cache_dir: Path | None = None,
        progress: Callable[[CompileJob, StaticFacts], None] = lambda _job, _facts: None,
    ) -> list[Fingerprint | str]:
        from mla_var3.languages.cute import fingerprint

        return fingerprint.fingerprints(
            jobs, workers=workers, cache_dir=cache_dir, progress=progress
        )

    def call(self, texts: Sequence[str]) -> str | None:
        return None

    def switches(self, kernel: Kernel) -> Mapping[str, object]:
        from mla_var3.languages.cute import fingerprint

        return fingerprint.switches(kernel)

    def build(self, kernel: Kernel) -> str:
        from mla_var3.languages.cute import jobs, signature, sources

        host, arguments = jobs.require_cute(kernel).host()
        specs = signature.specs(host, arguments)
        return f"{sources.identity(host) or id(host)}{specs}"

    def tiles(self, kernel: Kernel, source: Path, sizes: Mapping[str, int]) -> tuple[Tile, ...]:
        from mla_var3.languages.cute import evaluation, jobs

        return evaluation.accumulators(jobs.require_cute(kernel))

    def grid(self, kernel: Kernel) -> tuple[int, ...]:
        from mla_var3.languages.cute import evaluation, jobs

        return kernel.grid() or evaluation.grid(jobs.require_cute(kernel))

    def is_cooperative(self, kernel: Kernel) -> bool:
        from mla_var3.languages.cute import evaluation, jobs

        return evaluation.is_cooperative(jobs.require_cute(kernel))

    def mutants(self, source: str) -> Iterator[Mutant]:
        from mla_var3.languages.cute.mutants import Deriver

        return Deriver(source).mutants()

    def choices(self) -> Choices:
        from mla_var3.languages.cute.choices import CuteChoices

        return CuteChoices()

    def worker_warps(self, tiling: Mapping[str, object]) -> int | None:
        return None

    def launches(self, kernel: Kernel) -> re.Pattern[str]:
        # The DSL puts this before the function's name, and module and argument types after it.
        return re.compile(rf"kernel_cutlass_{re.escape(kernel.function_name)}_")

    def failures(self) -> tuple[type[BaseException], ...]:
        from mla_var3.errors import ToolchainError

        return (ToolchainError,)


LANGUAGE: Language = _Cute()
