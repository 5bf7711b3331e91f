"""Result table of a third-party suite: makes, writes, reads and prints it, with every exception."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from mla_var3 import inputs
from mla_var3.errors import ToolchainError
from mla_var3.gpuless.suites import Outcome, Suite, pins
from mla_var3.paths import relative, results_dir, write_atomic


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Found(_Model):
    """A report of what runs the kernels, short."""

    kind: str
    message: str
    at: str
    other: str | None = None


class Case(_Model):
    """A run of a script; or a test that did not pass, or passed with reports.

    Attributes:
        test: Its name; of a test without its parameters, of a script with its arguments.
        arch: What it was compiled for, where that is chosen.
        outcome: What became of it.
        cases: How many cases of the test that were.
        reason: What it said.
        explained: Why, in the words of the suite's file.
        findings: Reports that stand.
        blob: Git's id of the script.
        seconds: Wall time of the script, with all compilation.
        emulated_seconds: Of these, in what runs the kernels.
        clusters: Clusters that ran.
        instructions: Instructions that ran.
        schedules: Schedules that it ran under.
        requirements: File of ``third_party`` with packages that it saw in place of the installed.
    """

    test: str
    arch: str = ""
    outcome: Outcome
    cases: int = 1
    reason: str = ""
    explained: str = ""
    findings: tuple[Found, ...] = ()
    blob: str = ""
    seconds: float = 0.0
    emulated_seconds: float = 0.0
    clusters: int = 0
    instructions: int = 0
    schedules: int = 1
    requirements: str = ""

    @property
    def why(self) -> str:
        """Why it did not pass: as it is explained, else as it said."""
        return self.explained or self.reason


class LeftOut(_Model):
    """Tests that are not run, and why."""

    test: str
    reason: str


class FileCounts(_Model):
    """What became of the tests of one file."""

    file: str
    passed: int = 0
    refused: int = 0
    failed: int = 0
    skipped: int = 0


class Table(_Model):
    """What a suite came to.

    Attributes:
        version: Version of this form.
        suite: Name of the suite.
        repository: Where its sources are.
        commit: What was run.
        product: Whose plugin ran it, of tests.
        toolchain: Versions of the packages that it stands on.
        settings: How it was run, such as the memory model.
        sample: Cases kept of each test; None if all were run.
        launches: Launches.
        files: Counts by file, of tests.
        cases: Every run of a script; of tests those that did not simply pass.
        left_out: What was not run.
    """

    version: Literal[2] = 2
    suite: str
    repository: str = ""
    commit: str = ""
    product: str = "interpreter"
    toolchain: dict[str, str]
    settings: dict[str, str | int] = {}
    sample: int | None = None
    launches: int = 0
    files: tuple[FileCounts, ...] = ()
    cases: tuple[Case, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def counts(self) -> Counter[Outcome]:
        """Returns how many tests or runs came to each outcome."""
        if not self.files:
            return Counter(case.outcome for case in self.cases)
        names = (Outcome.PASSED, Outcome.REFUSED, Outcome.FAILED, Outcome.SKIPPED)
        return Counter({n: sum(int(getattr(f, n.value)) for f in self.files) for n in names})

    @property
    def unexplained(self) -> list[Case]:
        """What did not pass, or passed with reports, and has no reason in the suite's file."""
        fine = (Outcome.SKIPPED, Outcome.PASSED)
        return [c for c in self.cases if not c.explained and (c.outcome not in fine or c.findings)]


def made(
    suite: Suite,
    cases: Iterable[Case],
    settings: Mapping[str, str | int],
    sample: int | None = None,
    launches: int = 0,
    files: Iterable[FileCounts] = (),
) -> Table:
    """Returns the table of a suite."""
    return Table(
        suite=suite.name,
        repository=suite.repository,
        commit=suite.commit,
        product=suite.product,
        toolchain={
            **{name: version(name) for name in suite.toolchain},
            **pins(suite),
        },
        settings=dict(settings),
        sample=sample,
        launches=launches,
        files=tuple(files),
        cases=tuple(cases),
        left_out=tuple(
            LeftOut(test=e.test, reason=e.reason) for e in suite.exceptions if not e.run
        ),
    )


def path_of(name: str) -> Path:
    """Returns where the table of a suite is kept."""
    return results_dir() / "conformance" / f"{name}.json"


def write(table: Table) -> Path:
    """Writes a table, in one step, and returns its path."""
    path = path_of(table.suite)
    write_atomic(path, table.model_dump_json(indent=1, exclude_defaults=True) + "\n")
    return path


def read(path: Path) -> Table:
    """Reads a table.

    Raises:
        ToolchainError: If there is none, or it is not a table.
    """
    with inputs.faults_as(ToolchainError, f"the table of a suite {relative(path)}"):
        return Table.model_validate(inputs.read_json(path))


def describe(table: Table) -> str:
    """Returns a table for people: totals, and each test that is not explained."""
    counts = table.counts()
    totals = ", ".join(
        f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]
    )
    kept = "" if table.sample is None else f" ({table.sample} cases of each test)"
    ran = f"; {table.launches} launches" if table.launches else ""
    at = f" at {table.commit[:12]}" if table.commit else ""
    lines = [f"{table.suite}{at}{kept}: {totals}{ran}"]
    for case in table.unexplained:
        said = case.reason or "passed, with " + ", ".join(
            f"{f.kind} at {f.at}" for f in case.findings
        )
        lines.append(f"  not explained: {case.test} ({case.cases}): {said}")
    return "\n".join(lines)
