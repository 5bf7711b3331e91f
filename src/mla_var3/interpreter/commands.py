"""Command line of the interpreter: runs scripts, third-party suites or random programs on a CPU."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mla_var3 import arguments
from mla_var3.arguments import named
from mla_var3.collecting import uncollected
from mla_var3.errors import UnknownNameError, UsageError

PROG = "python -m mla_var3.interpreter"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that ``argv`` (the process's by default) names; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in arguments.HELP:
        print(f"usage: {PROG} {{{','.join(_COMMANDS)}}} ...\n")
        for name, command in _COMMANDS.items():
            print(f"  {name:12} {(command.__doc__ or '').splitlines()[0]}")
        return 0
    if argv[0] not in _COMMANDS:
        raise UnknownNameError("command", argv[0], list(_COMMANDS))
    return _COMMANDS[argv[0]](argv[1:])


def run(argv: Sequence[str]) -> int:
    """Run a script with every launch interpreted, and report each; options stand before it.

    Returns 1 when a finding is an error, else what the script returns.
    """
    options = list(itertools.takewhile(lambda a: a.startswith("-"), argv))
    rest = list(argv[len(options) :])

    def settings(
        padding: Literal["poison", "hardware"] = "poison",
        order: str = "forward",
        seed: int = 0,
        track: bool = True,
    ) -> dict[str, object]:
        """Run a Python script that uses cuTile, without a GPU: run [OPTIONS] SCRIPT [ARGS].

        Args:
            padding: What undetermined padding holds.
            order: The order in which blocks start: forward, reverse or random.
            seed: Seeds a random order.
            track: Whether hazards, unwritten elements and distinct bytes are followed.
        """
        return {"padding": padding, "order": order, "seed": seed, "track": track}

    chosen = arguments.parse(settings, options, f"{PROG} run")
    if not rest:
        raise UsageError(f"run needs a script; see {PROG} run --help")
    with uncollected():
        from mla_var3.interpreter.launch_report import summary
        from mla_var3.interpreter.options import using
        from mla_var3.interpreter.redirect import run_script

    with using(**chosen):
        reports, ended = run_script(Path(rest[0]), rest[1:])
    print(summary(reports))
    if ended.error is not None:
        raise ended.error
    return ended.code or int(any(report.errors for report in reports))


def conformance(argv: Sequence[str]) -> int:
    """Run third-party suites on the interpreter and record which of their tests pass."""

    def settings(
        suite: Annotated[tyro.conf.Positional[str], named("[SUITE]")] = "",
        checkout: Path | None = None,
        only: str = "",
        sample: int | None = None,
    ) -> tuple[str, Path | None, str, int | None]:
        """Run a suite of third_party/SUITE.toml (by default each) and write its table.

        Args:
            suite: cutile-python or tilegym.
            checkout: A folder that has its sources; by default they are fetched with git.
            only: An expression for pytest's -k, to run a part; nothing is recorded then.
            sample: Cases to run of each test, chosen evenly; all by default.
        """
        return suite, checkout, only, sample

    suite, checkout, only, sample = arguments.parse(settings, argv, f"{PROG} conformance")
    from mla_var3.gpuless import suite_tests

    return suite_tests.run("interpreter", suite, checkout, only, sample)


def fuzz(argv: Sequence[str]) -> int:
    """Compare random programs with numpy; 1 when one differs."""

    def settings(programs: int = 1000, first: int = 0, jobs: int = 1) -> tuple[int, int, int]:
        """Compare random programs with numpy, element by element.

        Args:
            programs: How many.
            first: Seed of the first one; the others count up from it.
            jobs: Processes that share them.
        """
        if min(programs, jobs) < 1:
            raise UsageError(f"--programs={programs} --jobs={jobs}: both are at least 1")
        return programs, first, jobs

    chosen = arguments.parse(settings, argv, f"{PROG} fuzz")
    from mla_var3.interpreter import fuzz as fuzzing

    return fuzzing.explore(*chosen)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": run,
    "conformance": conformance,
    "fuzz": fuzz,
}
