"""Protocol ``Language``: methods by which a language compiles, runs and describes its kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from mla_var3.evidence import Fingerprint, StaticFacts
from mla_var3.runtime.kernel import Kernel

Progress = Callable[[str], None]


@dataclass(frozen=True)
class CompileJob:
    """One kernel, under its present tiling, to compile for one arch."""

    kernel: Kernel
    arch: str


@dataclass(frozen=True)
class Compiled:
    """What a compile gave.

    Attributes:
        facts: Its facts.
        files: Its files by name; none where it failed.
        grid: Blocks per axis of the launch, where the compiled host code makes it; else empty.
    """

    facts: StaticFacts
    files: Mapping[str, bytes]
    grid: tuple[int, ...] = ()


@dataclass(frozen=True)
class StageMetric:
    """A figure of a stage that only this language states.

    Attributes:
        name: Snake case.
        unit: Unit of the value; empty for counts.
        origin: ``tiling`` or ``static``.
        better: Direction in which a kernel improves, where there is one.
        source: Where in a record it comes from.
        description: One sentence.
        read: From a stage's tiling and static facts; None where not stated.
    """

    name: str
    unit: str
    origin: str
    better: str | None
    source: str
    description: str
    read: Callable[[Mapping[str, object], StaticFacts | None], object]

    @classmethod
    def of_fact(cls, language: str, name: str, unit: str, better: str | None, about: str) -> Self:
        """The metric that a static fact of a language is, from a compile that came to its end."""

        def read(_: Mapping[str, object], facts: StaticFacts | None) -> object:
            known = facts is not None and facts.ok and facts.language == language
            return getattr(facts, name) if known else None

        return cls(name, unit, "static", better, f"stages[].static.{name}", about, read)


@dataclass(frozen=True)
class Tile:
    """Values in fp32 that threads of a kernel keep from step to step.

    Attributes:
        name: As the source has it.
        rows: Its first extent.
        columns: Its second.
        accumulates: Whether matrix multiplications add to it.
        threads: Threads that share it, where the source says; None where the compiler chooses.
    """

    name: str
    rows: int
    columns: int
    accumulates: bool
    threads: int | None = None


@dataclass(frozen=True)
class Mutant:
    """A source with one edit that makes its kernel wrong.

    Attributes:
        text: The edited source.
        edit: The edit in words, which no other one of the source shares.
        line: Where the function that is edited begins.
    """

    text: str
    edit: str
    line: int


class Choices(Protocol):
    """Many edits of run-time values in one compile, of which a process chooses one."""

    def written(self, source: str, numbers: Mapping[str, int]) -> str:
        """A source with many edits, each under a number.

        Args:
            source: Text of a file.
            numbers: The number of each edit, by the edit in words.
        """

    def play(self, log: Path) -> None:
        """Let this process compile and run such sources, for as long as it lives.

        Args:
            log: Where those who compile say of what kind each edit is.
        """

    def take(self, number: int | None) -> None:
        """Choose one edit from now on; none where the number is None."""

    def taken(self) -> frozenset[int]:
        """Numbers of those edits that were in what ran since one was chosen."""

    def differing(self) -> frozenset[int]:
        """Those of them that may change what ran, with none chosen; the others change nothing."""

    def kinds(self, log: Path) -> Mapping[int, frozenset[str]]:
        """By number what the edit was of wherever it was compiled: ``run``, ``same``, ``other``.

        It can be chosen where it is of run-time values alone, and changes nothing where a compile
        finds the same constant with it.
        """


class Language(Protocol):
    """A language of kernels.

    Attributes:
        key: Such as ``cutile-dsl``.
        package: Its folder below ``kernels/``.
        title: Its name in prose.
        archs: What is compiled for when nobody asks for an arch; empty when nothing is compiled.
        tools: Distributions whose versions shape its results.
        hints: Tiling fields that are hints to its compiler.
        cpu_builds: How many ways of compiling a version ``check`` runs on a CPU; None where it
            runs kernels without compiling them first.
        metrics: Figures that only its kernels have.
        levers: What a kernel's author can do about a rule of Nsight Compute, by the rule's
            identifier; a rule that is left to the compiler, or to nobody, is not there.
    """

    key: str
    package: str
    title: str
    archs: tuple[str, ...]
    tools: tuple[str, ...]
    hints: tuple[str, ...]
    cpu_builds: int | None
    metrics: tuple[StageMetric, ...]
    levers: Mapping[str, str]

    def known_archs(self) -> tuple[str, ...]:
        """All archs its compiler takes."""

    def cannot_compile(self, arch: str) -> str | None:
        """Why nothing can be compiled for the arch here; None when it can."""

    def refuses(self, kernel: Kernel, arch: str) -> str | None:
        """Why a kernel's sources do not fit an arch, before any compile; None when they do."""

    def cannot_execute(self) -> str | None:
        """Why its kernels do not run on a CPU; None when they do."""

    def compile_many(
        self,
        jobs: Sequence[CompileJob],
        *,
        workers: int | None = None,
        cache_dir: Path | None = None,
        timeout: float | None = None,
        progress: Callable[[CompileJob, StaticFacts], None] = lambda _job, _facts: None,
    ) -> list[Compiled]:
        """Compile jobs side by side; results in their order.

        Raises:
            ToolchainError: A tool is missing or of the wrong version.
            UnknownNameError: An arch that its compiler does not know.
        """

    def fingerprints(
        self,
        jobs: Sequence[CompileJob],
        *,
        workers: int | None = None,
        cache_dir: Path | None = None,
        progress: Callable[[CompileJob, StaticFacts], None] = lambda _job, _facts: None,
    ) -> list[Fingerprint | str]:
        """What tells each launch from others; for one that does not compile, why.

        Args:
            jobs: Kernels bound to tensors of the full size; meta tensors do.
            workers: Compilers at a time; the number of cores by default.
            cache_dir: Cache folder; the user's by default.
            progress: Told of each job that had to be compiled.
        """

    def call(self, texts: Sequence[str]) -> str | None:
        """Digest of the call of a library that a version's sources make; None where they compile.

        Args:
            texts: The sources.
        """

    def switches(self, kernel: Kernel) -> Mapping[str, object]:
        """What a kernel is compiled with besides shapes: flags, counts and element types."""

    def build(self, kernel: Kernel) -> str:
        """What a kernel is compiled from besides its sources; who shares it needs one compile."""

    def tiles(self, kernel: Kernel, source: Path, sizes: Mapping[str, int]) -> tuple[Tile, ...]:
        """The fp32 tiles that a kernel keeps, as far as its source tells them.

        Args:
            kernel: The kernel under its tiling.
            source: A file of it.
            sizes: The numbers of its tiling and problem, by name.
        """

    def mutants(self, source: str) -> Iterator[Mutant]:
        """Wrong kernels derived from a source; none where the language derives none.

        Args:
            source: Text of a file.
        """

    def choices(self) -> Choices | None:
        """How one compile serves many wrong kernels; None where each takes its own."""

    def worker_warps(self, tiling: Mapping[str, object]) -> int | None:
        """Warps of a block that hold tiles, where a tiling asks for them; None where it does not.

        Args:
            tiling: Of a stage, as a record states it.
        """

    def grid(self, kernel: Kernel) -> tuple[int, ...]:
        """Blocks per axis under its tiling, told without a compile; empty where that takes one."""

    def is_cooperative(self, kernel: Kernel) -> bool:
        """Whether a launch asks that all of its blocks run at once; false where none can ask."""

    def launches(self, kernel: Kernel) -> re.Pattern[str]:
        """What a profiler calls the launches of a kernel, from the start of the name."""

    def failures(self) -> tuple[type[BaseException], ...]:
        """What its compiler raises at a launch that it refuses."""
