"""Language ``library``: versions that call another library's kernel, to compare with ours.

It makes a peer a row of every table, or gives the reason where the library is missing. Nothing is
compiled here; a library that has a CPU path runs there too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mla_var3.errors import ToolchainError
from mla_var3.evidence import Fingerprint, StaticFacts
from mla_var3.languages.base import Compiled, CompileJob, Language, Mutant, StageMetric, Tile

if TYPE_CHECKING:
    from mla_var3.runtime.kernel import Kernel


class _Library:
    key = "library"
    package = "library"
    title = "Library"
    archs: tuple[str, ...] = ()
    tools: tuple[str, ...] = ("torch",)
    hints: tuple[str, ...] = ()
    cpu_builds: int | None = None
    metrics: tuple[StageMetric, ...] = ()
    levers: Mapping[str, str] = MappingProxyType({})

    def known_archs(self) -> tuple[str, ...]:
        return ()

    def cannot_compile(self, arch: str) -> str | None:
        return "a library brings its kernels compiled; there is no source of ours to compile"

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
        if jobs:
            raise ToolchainError(f"{jobs[0].kernel.name}: {self.cannot_compile(jobs[0].arch)}")
        return []

    def fingerprints(
        self,
        jobs: Sequence[CompileJob],
        *,
        workers: int | None = None,
        cache_dir: Path | None = None,
        progress: Callable[[CompileJob, StaticFacts], None] = lambda _job, _facts: None,
    ) -> list[Fingerprint | str]:
        return [str(self.cannot_compile(job.arch)) for job in jobs]

    def call(self, texts: Sequence[str]) -> str | None:
        from mla_var3.languages.library.call import call_digest

        return call_digest(texts)

    def switches(self, kernel: Kernel) -> Mapping[str, object]:
        return {}

    def build(self, kernel: Kernel) -> str:
        return kernel.name

    def tiles(self, kernel: Kernel, source: Path, sizes: Mapping[str, int]) -> tuple[Tile, ...]:
        return ()

    def grid(self, kernel: Kernel) -> tuple[int, ...]:
        return ()

    def is_cooperative(self, kernel: Kernel) -> bool:
        return False

    def mutants(self, source: str) -> Iterator[Mutant]:
        return iter(())

    def choices(self) -> None:
        return None

    def worker_warps(self, tiling: Mapping[str, object]) -> int | None:
        return None

    def launches(self, kernel: Kernel) -> re.Pattern[str]:
        # A library names its kernels as it likes, and may launch several.
        return re.compile(r".")

    def failures(self) -> tuple[type[BaseException], ...]:
        return ()


LANGUAGE: Language = _Library()
