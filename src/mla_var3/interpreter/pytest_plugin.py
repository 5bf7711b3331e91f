"""A pytest plugin that interprets every launch: ``-p mla_var3.interpreter.pytest_plugin``.

The suite runs unchanged and without a GPU. What the interpreter finds stands beside each test's
output, and at the end in one table. ``--interpreter-strict`` fails a test whose launches have
findings that are errors; ``--interpreter-results FILE`` writes a line of JSON per test.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from mla_var3.interpreter.options import using
from mla_var3.interpreter.redirect import redirected
from mla_var3.interpreter.report import Diagnostic, LaunchReport, recording

_reports = pytest.StashKey[list[LaunchReport]]()
_stack = contextlib.ExitStack()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("interpreter", "cuTile kernels on the CPU")
    group.addoption("--interpreter-results", metavar="FILE", help="write a line of JSON per test")
    group.addoption(
        "--interpreter-strict", action="store_true", help="findings that are errors fail a test"
    )
    group.addoption(
        "--interpreter-sample",
        type=int,
        metavar="N",
        help="run at most N of the cases of each test, evenly chosen",
    )
    group.addoption("--interpreter-padding", choices=("poison", "hardware"), default="poison")
    group.addoption("--interpreter-order", default="forward", help="order in which blocks start")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Redirects launches before anything of the suite is imported."""
    _stack.enter_context(redirected())
    known = early_config.known_args_namespace
    _stack.enter_context(using(padding=known.interpreter_padding, order=known.interpreter_order))


def pytest_unconfigure() -> None:
    """Ends the redirection."""
    _stack.close()


def pytest_configure(config: pytest.Config) -> None:
    """Registers what writes the results."""
    config.pluginmanager.register(_Findings(config), "mla_var3-interpreter-findings")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps a sample of the cases of each test, if one is asked for."""
    size = config.getoption("--interpreter-sample")
    if size is None:
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    kept = {id(item) for group in cases.values() for item in sample(group, size)}
    config.hook.pytest_deselected(items=[i for i in items if id(i) not in kept])
    items[:] = [i for i in items if id(i) in kept]


def sample(cases: list[pytest.Item], size: int) -> list[pytest.Item]:
    """Returns at most ``size`` cases, the first and the last one and evenly between."""
    if len(cases) <= size:
        return cases
    step = (len(cases) - 1) / max(1, size - 1)
    return [cases[round(i * step)] for i in range(size)]


class _Findings:
    """Collects what the launches of each test found."""

    def __init__(self, config: pytest.Config) -> None:
        self.strict: bool = config.getoption("--interpreter-strict")
        path = config.getoption("--interpreter-results")
        self.path = None if path is None else Path(path)
        if self.path is not None:
            self.path.write_text("", encoding="utf-8")
        self.launches = 0
        self.found: Counter[Diagnostic] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Records the launches of one test."""
        with recording() as reports:
            item.stash[_reports] = reports
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds the findings to the report of a test."""
        report = yield
        if report.when == "call" or report.outcome != "passed":
            self._add(item.stash[_reports], report)
        return report

    def _add(self, launches: list[LaunchReport], report: pytest.TestReport) -> None:
        found = [d for launch in launches for d in launch.diagnostics]
        errors = [d for d in found if d.severity == "error"]
        self.launches += len(launches)
        self.found.update(found)
        if found:
            report.sections.append(("interpreter", "\n".join(map(str, found))))
        if errors and self.strict and report.outcome == "passed":
            report.outcome = "failed"
            report.longrepr = "\n".join(map(str, errors))
        if self.path is not None:
            self._write(launches, errors, report)

    def _write(
        self, launches: list[LaunchReport], errors: list[Diagnostic], report: pytest.TestReport
    ) -> None:
        assert self.path is not None
        line = {
            "test": report.nodeid,
            "outcome": report.outcome,
            "reason": "" if report.outcome == "passed" else _reason(report),
            "launches": len(launches),
            "errors": sorted({f"{d.kind} at {Path(d.file).name}:{d.line}" for d in errors}),
            "seconds": round(report.duration, 3),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says how many launches there were, and what they found."""
        terminalreporter.section("interpreter")
        terminalreporter.line(f"{self.launches} launches, {len(self.found)} findings")
        for diagnostic in sorted(self.found, key=lambda d: (d.severity, d.file, d.line)):
            terminalreporter.line(str(diagnostic))


def _reason(report: pytest.TestReport) -> str:
    """Returns the last line of what pytest has to say about a test that did not pass."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (str(report.longrepr) if crash is None else str(crash.message)).strip().splitlines()
    return lines[0][:300] if lines else ""
