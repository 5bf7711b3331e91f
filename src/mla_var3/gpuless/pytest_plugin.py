"""Base of the pytest plugins that run a GPU test suite on the CPU, unchanged.

Findings of a test's launches are printed with its output and in one table at the end; a finding
that is an error fails its test. ``emulator`` and ``interpreter`` each register a plugin of this.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest


@dataclass(frozen=True, order=True)
class Finding:
    """What a launch found.

    Attributes:
        text: All about it.
        brief: Its kind and place.
        error: Whether it fails a test.
    """

    text: str
    brief: str
    error: bool = True


class Product(Protocol):
    """What runs the kernels."""

    name: str
    title: str

    def add_options(self, group: Any) -> None:
        """Add options of its own, named after it."""

    def environment(self, chosen: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which launches are run; it yields what they come to."""

    def findings(self, run: Any) -> tuple[int, Sequence[Finding]]:
        """Returns the number of launches, and what they found."""

    def refusal(self, run: Any) -> str:
        """Returns why a launch was not run where the program was not told; once."""


class Plugin:
    """The hooks; a product's own plugin registers one of it.

    Args:
        product: What runs the kernels.
    """

    def __init__(self, product: Product) -> None:
        self.product = product
        self.collecting = contextlib.ExitStack()
        self.launches = 0
        self.found: Counter[Finding] = Counter()
        self._run = pytest.StashKey[Any]()

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        """Adds the options."""
        name = self.product.name
        group = parser.getgroup(name, self.product.title)
        group.addoption(f"--{name}-results", metavar="FILE", help="write a line of JSON per test")
        group.addoption(f"--{name}-lenient", action="store_true", help="findings fail no test")
        group.addoption(
            f"--{name}-sample",
            type=int,
            metavar="N",
            help="run at most N of the cases of each test, evenly chosen",
        )
        self.product.add_options(group)

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Modules that ask for a GPU when they are imported find one."""
        chosen = early_config.known_args_namespace
        self.collecting.enter_context(self.product.environment(chosen))

    def pytest_collection_finish(self) -> None:
        """Each test has its own launches from here on."""
        self.collecting.close()

    def pytest_unconfigure(self) -> None:
        """Ends what an error left open."""
        self.collecting.close()

    def pytest_configure(self, config: pytest.Config) -> None:
        """Reads the options."""
        self.lenient: bool = self._option(config, "lenient")
        path = self._option(config, "results")
        self.path = None if path is None else Path(path)
        if self.path is not None:
            self.path.write_text("", encoding="utf-8")

    def _option(self, config: pytest.Config, name: str) -> Any:
        return config.getoption(f"--{self.product.name}-{name}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keeps a sample of the cases of each test, if one is asked for."""
        size = self._option(config, "sample")
        if size is None:
            return
        cases: dict[str, list[pytest.Item]] = {}
        for item in items:
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
        kept = {id(item) for group in cases.values() for item in sample(group, size)}
        config.hook.pytest_deselected(items=[i for i in items if id(i) not in kept])
        items[:] = [i for i in items if id(i) in kept]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Runs one test, with its fixtures, on the CPU."""
        with self.product.environment(item.config.option) as run:
            item.stash[self._run] = run
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds the findings to the report of a test."""
        report = yield
        if refused := self.product.refusal(item.stash[self._run]):
            report.outcome, report.longrepr = "failed", refused
        if report.when == "call" or report.outcome != "passed":
            self._add(*self.product.findings(item.stash[self._run]), report)
        return report

    def _add(self, launches: int, found: Sequence[Finding], report: pytest.TestReport) -> None:
        errors = [f for f in found if f.error]
        self.launches += launches
        self.found.update(found)
        if found:
            report.sections.append((self.product.name, "\n".join(f.text for f in found)))
        if errors and not self.lenient and report.outcome == "passed":
            report.outcome = "failed"
            report.longrepr = "\n".join(f.text for f in errors)
        if self.path is not None:
            line = {
                "test": report.nodeid,
                "outcome": report.outcome,
                "reason": "" if report.outcome == "passed" else _reason(report),
                "launches": launches,
                "errors": sorted({f.brief for f in errors}),
                "seconds": round(report.duration, 3),
            }
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says how many launches there were, and what they found."""
        terminalreporter.section(self.product.name)
        terminalreporter.line(f"{self.launches} launches, {len(self.found)} findings")
        for finding in sorted(self.found, key=lambda f: (not f.error, f.brief, f.text)):
            terminalreporter.line(finding.text)


def sample(cases: list[pytest.Item], size: int) -> list[pytest.Item]:
    """Returns at most ``size`` cases, the first and the last one and evenly between."""
    if len(cases) <= size:
        return cases
    step = (len(cases) - 1) / max(1, size - 1)
    return [cases[round(i * step)] for i in range(size)]


def _reason(report: pytest.TestReport) -> str:
    """Returns the first line of what pytest has to say about a test that did not pass."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (str(report.longrepr) if crash is None else str(crash.message)).strip().splitlines()
    return lines[0][:300] if lines else ""
