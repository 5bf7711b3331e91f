"""Conformance run of third-party PyPI packages, pinned and unmodified, in the emulator.

Each case is a function of a script in ``tests/emulator/strangers``, which calls a package and
compares its results with torch's. It runs twice in processes of its own, the second time with the
files that the package kept on disk.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mla_var3 import arguments, forked
from mla_var3.emulator import examples
from mla_var3.emulator.examples import CameTo
from mla_var3.gpuless import suite_scripts
from mla_var3.gpuless.suite_scripts import Product, Ran
from mla_var3.gpuless.suites import Script, Suite, find, package_folder
from mla_var3.gpuless.tables import Found
from mla_var3.paths import repo_root

SUITE = "strangers"


@dataclass(frozen=True)
class Strangers(examples.Conformance):
    """Run packages from PyPI, and write a table of what became of each case.

    Packages are fetched without their dependencies, into a folder that git ignores.

    Attributes:
        sample: Run so many cases at random, and keep the rest of the table; 0 runs all.
    """

    sample: int = 0


def main(argv: Sequence[str], prog: str) -> int:
    """Entry point of the command."""
    chosen: Strangers = arguments.parse(Strangers, argv, prog)
    suite = find(SUITE)
    settings = {"memory_model": chosen.memory_model, "schedules": chosen.schedules, "runs": 2}
    product = Product(partial(examine, suite, chosen), settings, examples.warm)
    return suite_scripts.run(suite, product, chosen)


def examine(suite: Suite, chosen: Strangers, script: Script) -> Ran:
    """Run a case twice.

    Raises:
        Exception: Whatever ended it.
    """
    with tempfile.TemporaryDirectory(prefix="strangers-") as folder:
        kept = {name: str(Path(folder) / name) for name in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR")}
        os.environ.update(kept, HOME=folder)
        first, second = (_turn(suite, chosen, script, Path(folder), n) for n in ("first", "second"))
    both = map(_relative, (*first.findings, *second.findings))
    findings = {(f.kind, f.at, f.other): f for f in both}
    return Ran(list(findings.values()), first.seconds, first.clusters, first.instructions)


def _relative(found: Found) -> Found:
    """A report with the places of packages as in the repository."""
    root = f"{repo_root()}/"
    other = found.other.replace(root, "") if found.other else None
    return found.model_copy(update={"at": found.at.replace(root, ""), "other": other})


def _turn(suite: Suite, chosen: Strangers, script: Script, folder: Path, name: str) -> Ran:
    """One run, in a process of its own."""
    logs = folder / f"{name}-log"
    logs.mkdir()
    work = {name: partial(_run, suite, chosen, script)}
    [(_, end)] = forked.run(work, folder=logs, workers=1, timeout=chosen.limit, explain=str)
    return examples.given(end.result or (False, end.failure or ""), f"{name} run: ")


def _run(suite: Suite, chosen: Strangers, script: Script) -> CameTo:
    """What a run came to."""
    sys.path[:0] = [str(package_folder(suite, p)) for p in suite.packages]
    return examples.attempt(chosen, script)
