"""pytest plugin that runs a suite's CuTe DSL and Triton launches in the emulator.

Loaded by ``-p mla_var3.emulator.pytest_plugin``; errors that the emulator finds fail their test.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mla_var3.emulator.diagnostics import Site
from mla_var3.emulator.emulation import Emulation
from mla_var3.emulator.options import MODELS, Options, model
from mla_var3.emulator.script import environment
from mla_var3.gpuless.pytest_plugin import Finding, Plugin


class Emulator:
    """Launches of the CuTe DSL, and of Triton."""

    name, title = "emulator", "CuTe DSL kernels on the CPU"

    def add_options(self, group: Any) -> None:
        """How kernels are compiled and run."""
        group.addoption("--emulator-arch", default="sm_90a", help="what kernels are compiled for")
        group.addoption("--emulator-model", choices=sorted(MODELS), default="default")
        group.addoption("--emulator-seed", type=int, help="another order of the warpgroups")
        group.addoption(
            "--emulator-multiprocessors",
            type=int,
            default=Options.multiprocessors,
            help="how many the emulated device says it has",
        )

    def environment(
        self, chosen: argparse.Namespace
    ) -> contextlib.AbstractContextManager[Emulation]:
        """Launches of the block are emulated."""
        options = Options(
            model=model(chosen.emulator_model),
            seed=chosen.emulator_seed,
            multiprocessors=chosen.emulator_multiprocessors,
        )
        return environment(options, chosen.emulator_arch)

    def findings(self, run: Emulation) -> tuple[int, Sequence[Finding]]:
        """What the launches came to."""
        found = [Finding(str(d), f"{d.kind} at {_brief(d.at)}") for d in run.diagnostics]
        return len(run.launches) + sum(not one.refused for one in run.elsewhere), found

    def refusal(self, run: Emulation) -> str:
        """Why a launch was not run; a program learns only that it failed."""
        refused = run.refusal()
        return "" if refused is None else str(refused)


def _brief(site: Site) -> str:
    return f"{Path(site.file).name}:{site.line}" if site.file else f"ptx#{site.pc}"


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Registers the hooks."""
    pluginmanager.register(Plugin(Emulator()), "mla_var3-emulator")
