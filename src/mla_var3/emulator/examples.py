"""Runs NVIDIA's CuTe DSL examples in the emulator and writes a table of passed and refused ones."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from mla_var3 import arguments
from mla_var3.collecting import uncollected
from mla_var3.emulator.options import Options, model
from mla_var3.errors import EmulatorError, HyperMlaError
from mla_var3.gpuless import suite_scripts
from mla_var3.gpuless.suite_scripts import Choice, Product, Ran
from mla_var3.gpuless.suites import Script, find, required
from mla_var3.gpuless.tables import Found

SUITE = "cutlass-examples"
#: Every option of the command lines of some of them.
OPTIONS = "cutlass-options"


@dataclass(frozen=True)
class Conformance(Choice):
    """Run NVIDIA's CuTe DSL examples and write a table of what happened to each.

    The table is written whenever an example ends, so that an interrupt loses none that ended.

    Attributes:
        checkout: A checkout of NVIDIA/cutlass; by default what ``examples fetch`` made.
        only: Run the examples whose path contains this, and keep the rest of the table.
        resume: Keep what the table has of unchanged files, and run what is missing.
        workers: Examples at a time, each in a process of its own.
        limit: Seconds after which an example is stopped.
        memory_model: Assumptions about hardware.
        schedules: Schedules per example, where the suite's file asks for no more.
    """

    memory_model: Literal["default", "strict"] = "default"
    schedules: int = 1


def main(argv: Sequence[str], prog: str, suite: str = SUITE) -> int:
    """Entry point of the command."""
    chosen: Conformance = arguments.parse(Conformance, argv, prog)
    return suite_scripts.run(find(suite), product(chosen), chosen)


def product(chosen: Conformance) -> Product:
    """The emulator, as a suite's scripts are run by it."""
    settings = {"memory_model": chosen.memory_model, "schedules": chosen.schedules}
    return Product(partial(examine, chosen), settings, warm)


def warm() -> None:
    """Load what every script needs."""
    with uncollected():
        import torch

        from mla_var3.emulator.script import load

        load()
    torch.set_num_threads(1)


def examine(chosen: Conformance, script: Script) -> Ran:
    """Run an example under each schedule; beside others it keeps to one core.

    Raises:
        Exception: Whatever ended it.
    """
    if script.requirements:
        return _elsewhere(chosen, script)
    from mla_var3.emulator.script import run_script

    jobs = 1 if chosen.workers > 1 else 0
    seconds, clusters, instructions = 0.0, 0, 0
    found: dict[tuple[str, str, str | None], Found] = {}
    schedules = max(chosen.schedules, script.schedules)
    for seed in [None, *range(1, schedules)]:
        options = Options(model=model(chosen.memory_model), seed=seed, jobs=jobs)
        run = run_script(Path(script.path), script.arguments.split(), options, script.arch)
        if run.ended.error is not None:
            raise run.ended.error
        if run.ended.code:
            raise SystemExit(run.ended.code)
        for launch in run.launches:
            seconds += launch.seconds
            clusters += launch.clusters
            instructions += int(launch.counts.warps.sum())
        for d in run.diagnostics:
            at, other = str(d.at), str(d.other) if d.other else None
            found[d.kind, at, other] = Found(kind=d.kind, message=d.message, at=at, other=other)
    return Ran(list(found.values()), seconds, clusters, instructions, schedules)


#: What an example came to; else whether the emulator ended it, and why.
CameTo = Ran | tuple[bool, str]


def attempt(chosen: Conformance, script: Script) -> CameTo:
    """Run an example, in a process that gives what it came to to another one."""
    try:
        return examine(chosen, script)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # Whatever it raises is its outcome.
        return isinstance(error, HyperMlaError), suite_scripts.sentence(error)


def given(came_to: CameTo, name: str = "") -> Ran:
    """What another process gave.

    Raises:
        EmulatorError: The emulator ended it.
        RuntimeError: Something else did.
    """
    if isinstance(came_to, Ran):
        return came_to
    ours, said = came_to
    raise (EmulatorError if ours else RuntimeError)(f"{name}{said}")


def _elsewhere(chosen: Conformance, script: Script) -> Ran:
    """Run an example in a Python that sees packages of its own first."""
    path = os.pathsep.join([str(required(script.requirements)), *sys.path])
    with tempfile.TemporaryDirectory(prefix="example-") as folder:
        answer = Path(folder, "answer")
        subprocess.run(
            [sys.executable, "-c", f"import {__name__} as m; m.leave({str(answer)!r})"],
            input=pickle.dumps((chosen, replace(script, requirements=""))),
            env={**os.environ, "PYTHONPATH": path},
            stdout=sys.stderr,
            check=True,
        )
        return given(pickle.loads(answer.read_bytes()))


def leave(path: str) -> None:
    """Run what stands pickled in the standard input, and leave what it came to in a file."""
    Path(path).write_bytes(pickle.dumps(attempt(*pickle.load(sys.stdin.buffer))))
