"""A pytest plugin that emulates every launch: ``-p mla_var3.emulator.pytest_plugin``.

A suite of CuTe DSL kernels runs unchanged and without a GPU. A test whose launches have findings
fails with them; ``--emulator-lenient`` only shows them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from mla_var3.emulator.host import Emulation
from mla_var3.emulator.options import MODELS, Options, model
from mla_var3.emulator.script import environment

_run = pytest.StashKey[Emulation]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("emulator", "CuTe DSL kernels on the CPU")
    group.addoption("--emulator-arch", default="sm_90a", help="what kernels are compiled for")
    group.addoption("--emulator-model", choices=sorted(MODELS), default="default")
    group.addoption("--emulator-seed", type=int, help="another order of the warpgroups")
    group.addoption("--emulator-lenient", action="store_true", help="findings do not fail a test")


def pytest_configure(config: pytest.Config) -> None:
    """Registers what looks at each test."""
    config.pluginmanager.register(_Findings(config), "mla_var3-emulator-findings")


class _Findings:
    """Emulates each test, and fails those with findings."""

    def __init__(self, config: pytest.Config) -> None:
        self.arch: str = config.getoption("--emulator-arch")
        self.lenient: bool = config.getoption("--emulator-lenient")
        memory = model(config.getoption("--emulator-model"))
        self.options = Options(model=memory, seed=config.getoption("--emulator-seed"))
        self.launches = self.found = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Modules that ask for a GPU when they are imported find the emulated one."""
        with environment(self.options, self.arch):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Runs the test on the CPU."""
        with environment(self.options, self.arch) as run:
            item.stash[_run] = run
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds the findings to the report of a test."""
        report = yield
        if report.when == "call" and (run := item.stash.get(_run, None)) is not None:
            self._add(run, report)
        return report

    def _add(self, run: Emulation, report: pytest.TestReport) -> None:
        self.launches += len(run.launches)
        self.found += len(run.diagnostics)
        text = "\n".join(map(str, run.diagnostics))
        if text:
            report.sections.append(("emulator", text))
        if text and not self.lenient and report.outcome == "passed":
            report.outcome, report.longrepr = "failed", text

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says how many launches there were, and how many findings."""
        terminalreporter.section("emulator")
        terminalreporter.line(f"{self.launches} launches, {self.found} findings")
