"""pytest plugin that runs a suite's cuTile launches in the interpreter.

Loaded by ``-p mla_var3.interpreter.pytest_plugin``; errors that it finds fail their test.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mla_var3.gpuless.pytest_plugin import Finding, Plugin
from mla_var3.interpreter.launch_report import LaunchReport
from mla_var3.interpreter.options import using
from mla_var3.interpreter.redirect import redirected


class Interpreter:
    """cuTile's launches."""

    name, title = "interpreter", "cuTile kernels on the CPU"

    def add_options(self, group: Any) -> None:
        """How kernels are run."""
        group.addoption("--interpreter-padding", choices=("poison", "hardware"), default="poison")
        group.addoption(
            "--interpreter-order", default="forward", help="order in which blocks start"
        )

    @contextlib.contextmanager
    def environment(self, chosen: argparse.Namespace) -> Iterator[list[LaunchReport]]:
        """Launches of the block are interpreted."""
        how = using(padding=chosen.interpreter_padding, order=chosen.interpreter_order)
        with how, redirected() as reports:
            yield reports

    def findings(self, run: list[LaunchReport]) -> tuple[int, Sequence[Finding]]:
        """What the reports say."""
        found = [
            Finding(str(d), f"{d.kind} at {Path(d.file).name}:{d.line}", d.severity == "error")
            for report in run
            for d in report.diagnostics
        ]
        return len(run), found

    def refusal(self, run: list[LaunchReport]) -> str:
        """A launch that is refused raises where it stands, which pytest reports."""
        return ""


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Registers the hooks."""
    pluginmanager.register(Plugin(Interpreter()), "mla_var3-interpreter")
