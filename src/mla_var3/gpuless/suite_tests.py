"""Runs the tests of a third-party suite by pytest under a plugin, and writes a table of results.

The interpreter's command ``conformance`` calls it; ``suite_scripts`` does the same for scripts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mla_var3 import forked
from mla_var3.errors import ToolchainError, UnknownNameError
from mla_var3.gpuless import tables
from mla_var3.gpuless.suites import (
    Exempt,
    Outcome,
    Suite,
    read_suite,
    required,
    sources,
    suites,
)
from mla_var3.gpuless.tables import Case, FileCounts, Found, Table


def run(product: str, name: str, checkout: Path | None, only: str, sample: int | None) -> int:
    """Runs one suite or all, writes their tables, and returns 1 if anything is not explained.

    Args:
        product: Whose plugin runs the launches.
        name: The suite; every suite of tests that the product runs if empty.
        checkout: A folder that has its sources; they are fetched by default.
        only: An expression for pytest's ``-k``, to run a part; nothing is written then.
        sample: Cases to keep of each test; all by default.

    Raises:
        UnknownNameError: If the product runs no such suite of tests.
    """
    known = {s.name: s for s in map(read_suite, suites().values()) if s.product == product}
    known = {name: suite for name, suite in known.items() if suite.tests}
    if name and name not in known:
        raise UnknownNameError("suite", name, list(known))
    code = 0
    for suite in [known[name]] if name else known.values():
        table = run_suite(product, suite, sources(suite, checkout), only, sample)
        print(tables.describe(table))
        if not only:
            print(f"wrote {tables.write(table)}")
        code = code or int(bool(table.unexplained))
    return code


def run_suite(
    product: str, suite: Suite, folder: Path, only: str = "", sample: int | None = None
) -> Table:
    """Runs a suite's tests and returns its table.

    Args:
        product: Whose plugin runs the launches.
        suite: The suite.
        folder: Its sources.
        only: An expression for pytest's ``-k``; everything if empty.
        sample: Cases to keep of each test; all by default.

    Raises:
        ToolchainError: If no test ran.
    """
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results.jsonl"
        command = [sys.executable, "-m", "pytest", "-p", f"mla_var3.{product}.pytest_plugin"]
        command += ["-p", "no:cacheprovider", "-q", "--continue-on-collection-errors"]
        command += [f"--{product}-results={results}", f"--{product}-lenient"]
        command += [] if sample is None else [f"--{product}-sample={sample}"]
        command += ["-k", only] if only else []
        command += [f"--deselect={e.test.rstrip(chr(42))}" for e in suite.exceptions if not e.run]
        command += [*suite.arguments, *suite.tests]
        path = [str(folder / part) for part in suite.import_path]
        path += [str(required(suite.requirements))] if suite.requirements else []
        path += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        subprocess.run(
            command, cwd=folder, env=environment, check=False, preexec_fn=forked.die_with_parent
        )
        told = results.read_text(encoding="utf-8") if results.exists() else ""
        # A table says nothing of the machine that it was made on.
        lines = told.replace(f"{folder}{os.sep}", "").splitlines()
    if not lines:
        raise ToolchainError(f"no test of {suite.name} ran in {folder}")
    return tabulate(suite, [json.loads(line) for line in lines], sample)


def tabulate(suite: Suite, results: Sequence[Mapping[str, Any]], sample: int | None) -> Table:
    """Makes the table of a suite from a line for each test, as the pytest plugin writes them."""
    files: dict[str, dict[str, int]] = {}
    groups: dict[tuple[str, Outcome, str, str], list[Mapping[str, Any]]] = {}
    for result in results:
        explanation = _explanation(suite, result)
        outcome = _outcome(result, explanation)
        file, _, rest = result["test"].partition("::")
        counts = files.setdefault(file, {})
        counts[outcome.value] = counts.get(outcome.value, 0) + 1
        if outcome is not Outcome.PASSED or result["errors"]:
            test = f"{file}::{rest.split('[')[0]}"
            reason = "" if explanation is None else explanation.reason
            said = "" if outcome is Outcome.PASSED else result["reason"][:200]
            groups.setdefault((test, outcome, said, reason), []).append(result)
    return tables.made(
        suite,
        [
            Case(
                test=test,
                outcome=outcome,
                cases=len(group),
                reason=said,
                explained=reason,
                findings=tuple(_found(group)),
            )
            for (test, outcome, said, reason), group in sorted(groups.items())
        ],
        settings={},
        sample=sample,
        launches=sum(result["launches"] for result in results),
        files=[FileCounts(file=file, **files[file]) for file in sorted(files)],
    )


def _found(group: Iterable[Mapping[str, Any]]) -> Iterable[Found]:
    for brief in sorted({e for result in group for e in result["errors"]}):
        kind, _, at = brief.partition(" at ")
        yield Found(kind=kind, message="", at=at)


def _explanation(suite: Suite, result: Mapping[str, Any]) -> Exempt | None:
    """Why a test does not pass, or passes with a report; the latter explains no failure."""
    found = suite.explanation(result["test"])
    stands = found is not None and found.outcome is Outcome.FOUND
    return None if stands and result["outcome"] == "failed" else found


def _outcome(result: Mapping[str, Any], explanation: Exempt | None) -> Outcome:
    if result["outcome"] == "failed" and explanation is not None:
        return explanation.outcome
    return Outcome(result["outcome"])
