"""Runs suites of others on the interpreter, and keeps which of their tests pass as a table.

A suite is a file ``third_party/NAME.toml``: where its sources are, which commit, what of it runs,
and every exception, one by one, with its reason. Sources are fetched into ``third_party/NAME``,
which git ignores, or taken from a checkout that is there.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mla_var3 import inputs
from mla_var3.errors import InputError, InterpreterError, ToolchainError, UnknownNameError
from mla_var3.paths import repo_root, results_dir, write_atomic

#: Names the folder of checkouts, each in a folder named as its suite; a flag comes before it.
CHECKOUTS = "HYPERMLA_CHECKOUTS"


class Outcome(StrEnum):
    """What became of one test."""

    PASSED = "passed"
    REFUSED = "refused"
    FAILED = "failed"
    SKIPPED = "skipped"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Exempt(_Model):
    """Tests that do not pass, and why.

    Attributes:
        test: Pattern of test ids, as the shell's.
        outcome: Refused by the interpreter, or failed.
        reason: One sentence.
        run: Whether it is run all the same; False for what needs too much memory or time.
    """

    test: str
    outcome: Literal[Outcome.REFUSED, Outcome.FAILED]
    reason: str
    run: bool = True


class Suite(_Model):
    """What is run of a third party's sources."""

    name: str
    repository: str
    commit: str = Field(pattern="^[0-9a-f]{40}$")
    license: str
    tests: tuple[str, ...]
    import_path: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    padding: Literal["poison", "hardware"] = "poison"
    exceptions: tuple[Exempt, ...] = ()


class Case(_Model):
    """A test that did not pass, or passed with findings that are errors."""

    test: str
    outcome: Outcome
    cases: int
    reason: str = ""
    explained: str = ""
    errors: tuple[str, ...] = ()


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
    """What a suite came to on the interpreter.

    Attributes:
        version: Version of this form.
        suite: Name of the suite.
        repository: Where its sources are.
        commit: What was run.
        cuda_tile: Version of cuTile.
        sample: Cases kept of each test; None if all were run.
        launches: Launches interpreted.
        files: Counts by file.
        exceptions: What did not pass, one entry for each test function and reason.
        left_out: What was not run.
    """

    version: Literal[1] = 1
    suite: str
    repository: str
    commit: str
    cuda_tile: str
    sample: int | None
    launches: int
    files: tuple[FileCounts, ...]
    exceptions: tuple[Case, ...]
    left_out: tuple[LeftOut, ...] = ()

    def count(self, outcome: Outcome) -> int:
        """Returns how many tests came to an outcome."""
        return sum(int(getattr(f, outcome.value)) for f in self.files)

    @property
    def unexplained(self) -> list[Case]:
        """What did not pass, or passed with errors, and has no reason in the suite's file."""
        return [c for c in self.exceptions if c.outcome is not Outcome.SKIPPED and not c.explained]


# ------------------------------------------------------------------------------------- suites


def suites() -> dict[str, Path]:
    """Returns the files of the suites, by name."""
    folder = repo_root() / "third_party"
    return {
        path.stem: path
        for path in sorted(folder.glob("*.toml"))
        if "[suite]" in inputs.read_text(path)
    }


def read_suite(path: Path) -> Suite:
    """Reads the file of a suite.

    Raises:
        InterpreterError: If it is not one.
    """
    try:
        return Suite(name=path.stem, **inputs.read_toml(path)["suite"])
    except (InputError, KeyError, TypeError, ValidationError) as error:
        raise InterpreterError(f"{path} is not a suite: {' '.join(str(error).split())}") from error


def sources(suite: Suite, checkout: Path | None) -> Path:
    """Returns a folder with the sources of a suite, which it fetches if none is given.

    Raises:
        InterpreterError: If the folder that is given does not exist.
        ToolchainError: If they cannot be fetched.
    """
    if checkout is None and CHECKOUTS in os.environ:
        checkout = Path(os.environ[CHECKOUTS]) / suite.name
    if checkout is not None:
        if not checkout.is_dir():
            raise InterpreterError(f"there is no checkout of {suite.name} at {str(checkout)!r}")
        return checkout
    folder = repo_root() / "third_party" / suite.name
    if not (folder / ".git").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _git(folder, "init", "--quiet")
    if _git(folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False) != suite.commit:
        print(f"fetching {suite.repository} at {suite.commit[:12]}", flush=True)
        _git(folder, "fetch", "--quiet", "--depth=1", suite.repository, suite.commit)
        _git(folder, "checkout", "--quiet", "--force", "FETCH_HEAD")
    return folder


def _git(folder: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if check and done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ToolchainError(f"git {arguments[0]} failed in {folder}: {last[0]}")
    return done.stdout.strip()


# --------------------------------------------------------------------------------------- runs


def run_suite(suite: Suite, folder: Path, only: str = "", sample: int | None = None) -> Table:
    """Runs a suite's tests and returns its table.

    Args:
        suite: The suite.
        folder: Its sources.
        only: An expression for pytest's ``-k``; everything if empty.
        sample: Cases to keep of each test; all by default.

    Raises:
        InterpreterError: If no test ran.
    """
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results.jsonl"
        command = [sys.executable, "-m", "pytest", "-p", "mla_var3.interpreter.pytest_plugin"]
        command += ["-p", "no:cacheprovider", "-q", "--continue-on-collection-errors"]
        command += [f"--interpreter-results={results}", f"--interpreter-padding={suite.padding}"]
        command += ["--interpreter-lenient"]
        command += [] if sample is None else [f"--interpreter-sample={sample}"]
        command += ["-k", only] if only else []
        for exception in suite.exceptions:
            if not exception.run:
                command += [f"--deselect={exception.test.rstrip(chr(42))}"]
        command += [*suite.arguments, *suite.tests]
        path = [str(folder / part) for part in suite.import_path]
        path += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        subprocess.run(command, cwd=folder, env=environment, check=False)
        told = results.read_text(encoding="utf-8") if results.exists() else ""
        # A table says nothing of the machine that it was made on.
        lines = told.replace(f"{folder}{os.sep}", "").splitlines()
    if not lines:
        raise InterpreterError(f"no test of {suite.name} ran in {folder}")
    return tabulate(suite, [json.loads(line) for line in lines], sample)


def tabulate(suite: Suite, results: Sequence[dict[str, Any]], sample: int | None) -> Table:
    """Makes the table of a suite from a line for each test, as the pytest plugin writes them."""
    files: dict[str, dict[str, int]] = {}
    groups: dict[tuple[str, Outcome, str, str], list[dict[str, Any]]] = {}
    for result in results:
        explanation = _explanation(suite, result["test"])
        outcome = _outcome(result, explanation)
        file, _, rest = result["test"].partition("::")
        counts = files.setdefault(file, {})
        counts[outcome.value] = counts.get(outcome.value, 0) + 1
        if outcome is not Outcome.PASSED or result["errors"]:
            test = f"{file}::{rest.split('[')[0]}"
            reason = "" if explanation is None else explanation.reason
            said = "" if outcome is Outcome.PASSED else result["reason"][:200]
            groups.setdefault((test, outcome, said, reason), []).append(result)
    return Table(
        suite=suite.name,
        repository=suite.repository,
        commit=suite.commit,
        cuda_tile=importlib.metadata.version("cuda-tile"),
        sample=sample,
        launches=sum(result["launches"] for result in results),
        files=tuple(FileCounts(file=file, **files[file]) for file in sorted(files)),
        exceptions=tuple(
            Case(
                test=test,
                outcome=outcome,
                cases=len(group),
                reason=said,
                explained=reason,
                errors=tuple(sorted({e for result in group for e in result["errors"]})),
            )
            for (test, outcome, said, reason), group in sorted(groups.items())
        ),
        left_out=tuple(
            LeftOut(test=e.test, reason=e.reason) for e in suite.exceptions if not e.run
        ),
    )


def _explanation(suite: Suite, test: str) -> Exempt | None:
    # Brackets stand for themselves: ids of cases are in brackets.
    found = (e for e in suite.exceptions if fnmatch(test, e.test.replace("[", "[[]")))
    return next(found, None)


def _outcome(result: dict[str, Any], explanation: Exempt | None) -> Outcome:
    if result["outcome"] == "failed" and explanation is not None:
        return explanation.outcome
    return Outcome(result["outcome"])


# -------------------------------------------------------------------------------------- tables


def path_of(name: str) -> Path:
    """Returns where the table of a suite is kept."""
    return results_dir() / "conformance" / f"{name}.json"


def write(table: Table) -> Path:
    """Writes a table, in one step, and returns its path."""
    path = path_of(table.suite)
    write_atomic(path, table.model_dump_json(indent=1) + "\n")
    return path


def read(name: str) -> Table:
    """Reads the table of a suite.

    Raises:
        InterpreterError: If there is none, or it is not a table.
    """
    try:
        return Table.model_validate_json(inputs.read_text(path_of(name)))
    except (InputError, ValidationError) as error:
        raise InterpreterError(f"{path_of(name)} is not a table of a suite: {error}") from error


def describe(table: Table) -> str:
    """Returns a table for people: totals, and each test that is not explained."""
    totals = ", ".join(f"{table.count(outcome)} {outcome.value}" for outcome in Outcome)
    kept = "" if table.sample is None else f" ({table.sample} cases of each test)"
    lines = [f"{table.suite} at {table.commit[:12]}{kept}: {totals}; {table.launches} launches"]
    for case in table.unexplained:
        said = case.reason or "passed, with " + ", ".join(case.errors)
        lines.append(f"  not explained: {case.test} ({case.cases}): {said}")
    return "\n".join(lines)


def run(name: str, checkout: Path | None, only: str, sample: int | None) -> int:
    """Runs one suite or all, writes their tables, and returns 1 if anything is not explained.

    Raises:
        UnknownNameError: If there is no such suite.
    """
    known = suites()
    if name and name not in known:
        raise UnknownNameError("suite", name, list(known))
    code = 0
    for path in [known[name]] if name else known.values():
        suite = read_suite(path)
        table = run_suite(suite, sources(suite, checkout), only, sample)
        print(describe(table))
        if not only:
            print(f"wrote {write(table)}")
        code = code or int(bool(table.unexplained))
    return code
