"""PTX by hand: ptxas compiles it, the emulator runs it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mla_var3.evidence import Fingerprint, StaticFacts
from mla_var3.languages.base import Compiled, CompileJob, Language, Mutant, StageMetric, Tile

if TYPE_CHECKING:
    from mla_var3.runtime.kernel import Kernel


class _Ptx:
    key = "ptx"
    package = "ptx"
    title = "PTX"
    archs: tuple[str, ...] = ("sm_90",)
    tools: tuple[str, ...] = ("nvidia-cuda-nvcc",)
    hints: tuple[str, ...] = ()
    #: The emulator takes a second per few hundred threads.
    cpu_builds: int | None = 2
    metrics: tuple[StageMetric, ...] = ()
    levers: Mapping[str, str] = MappingProxyType({})

    def known_archs(self) -> tuple[str, ...]:
        return self.archs

    def cannot_compile(self, arch: str) -> str | None:
        return None

    def refuses(self, kernel: Kernel, arch: str) -> str | None:
        return None

    def cannot_execute(self) -> str | None:
        return None

    def compile_many(
        self,
        jobs: Sequence[CompileJob],
        *,
        workers: int | None = None,
        cache_dir: Path | None = None,
        timeout: float | None = None,
        progress: Callable[[CompileJob, StaticFacts], None] = lambda _job, _facts: None,
    ) -> list[Compiled]:
        from mla_var3.languages.ptx.compile import compile_one

        found = []
        for job in jobs:
            found.append(compile_one(job, timeout))
            progress(job, found[-1].facts)
        return found

    def fingerprints(
        self,
        jobs: Sequence[CompileJob],
        *,
        workers: int | None = None,
        cache_dir: Path | None = None,
        progress: Callable[[CompileJob, StaticFacts], None] = lambda _job, _facts: None,
    ) -> list[Fingerprint | str]:
        from mla_var3.languages.ptx.compile import fingerprint

        made = self.compile_many(jobs, progress=progress)
        return [
            one.facts.error or fingerprint(job.kernel, one)
            for job, one in zip(jobs, made, strict=True)
        ]

    def call(self, texts: Sequence[str]) -> str | None:
        return None

    def switches(self, kernel: Kernel) -> Mapping[str, object]:
        return {name: str(tensor.dtype) for name, tensor in kernel.input_tensors.items()}

    def build(self, kernel: Kernel) -> str:
        shapes = {name: tuple(x.shape) for name, x in kernel.input_tensors.items()}
        return f"{kernel.name} {shapes} {self.switches(kernel)}"

    def tiles(self, kernel: Kernel, source: Path, sizes: Mapping[str, int]) -> tuple[Tile, ...]:
        return ()

    def mutants(self, source: str) -> Iterator[Mutant]:
        return iter(())

    def choices(self) -> None:
        return None

    def worker_warps(self, tiling: Mapping[str, object]) -> int | None:
        return None

    def grid(self, kernel: Kernel) -> tuple[int, ...]:
        return kernel.grid()

    def is_cooperative(self, kernel: Kernel) -> bool:
        return False

    def launches(self, kernel: Kernel) -> re.Pattern[str]:
        return re.compile(rf"{re.escape(kernel.function_name)}$")

    def failures(self) -> tuple[type[BaseException], ...]:
        return ()


LANGUAGE: Language = _Ptx()
