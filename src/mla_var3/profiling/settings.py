"""``Settings`` of a profiling run and its ``ProfileResult``, the same for every mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3.errors import ToolchainError
from mla_var3.evidence import Failed, Passed, Record
from mla_var3.runtime.registry import Version

Progress = Callable[[str], None]
Advise = Callable[[Sequence[Record]], Sequence[str]]
#: Name of a fact and the fact in a sentence.
Fact = tuple[str, str]
Known = Callable[[Sequence[Record]], Sequence[Fact]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to run a plan; all of it has a default.

    Attributes:
        version: The version the plan belongs to, or ``"<design> <version>"``; found by the plan
            when None.
        out_dir: Folder for bulk artefacts; ``out/`` of the checkout by default.
        results: Results folder; the checkout's by default.
        label: Prefix of progress lines.
        bench_runs: Timed runs.
        check: Compare with the reference first; a wrong kernel is not timed.
        no_autotune: Keep the default tilings.
        retune: Tune even where tuned tilings are stored.
        tune_max_iters: Tilings to time, or to compile, per stage.
        advise: Gives the lines of the report on what to try next.
        known: Gives what the records say of the version: a name and a sentence per fact.
        progress: Told what happens.
    """

    version: Version | str | None = None
    out_dir: Path | str | None = None
    results: Path | None = None
    label: str | None = None
    bench_runs: int = 50
    check: bool = True
    no_autotune: bool = False
    retune: bool = False
    tune_max_iters: int = 32
    advise: Advise = lambda _: ()
    known: Known = lambda _: ()
    progress: Progress = lambda _: None

    def say(self, text: str) -> None:
        """Tell whoever listens."""
        self.progress(text if self.label is None else f"{self.label}: {text}")


@dataclass(frozen=True)
class ProfileResult:
    """What a run found and where it lies.

    Attributes:
        records: One record per arch in mode static, else one.
        record_paths: Where they lie, and the record of the times that a profiler's mode took first.
        files: Bulk artefacts.
        report: The report; None when none was written.
        steps: What to try next.
        known: What the records say of the version.
    """

    records: tuple[Record, ...]
    record_paths: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    report: Path | None = None
    steps: tuple[str, ...] = ()
    known: tuple[Fact, ...] = ()

    @property
    def record(self) -> Record:
        """The only record, or the last."""
        return self.records[-1]

    @property
    def paths(self) -> tuple[Path, ...]:
        """Everything that was written."""
        return (*self.record_paths, *self.files, *([self.report] if self.report else ()))

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not any(isinstance(r.outcome, Failed) for r in self.records)

    def get_total_time_us(self) -> float:
        """Median time of the whole version in microseconds.

        Raises:
            ToolchainError: The run measured no time.
        """
        outcome = self.record.outcome
        if isinstance(outcome, Failed):
            raise ToolchainError(f"the run failed: {outcome.error}")
        if not isinstance(outcome, Passed) or outcome.total is None:
            raise ToolchainError(f"a run in mode {self.record.mode} measures no time")
        return outcome.total.median_us
