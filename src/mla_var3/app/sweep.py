"""Command ``sweep``: runs many versions, problems, tilings and targets, here or on Dask workers.

A file names them; the modules ``sweepspec``, ``sweeping`` and ``surfaces`` of ``campaign`` read it,
run the cases and draw the results.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mla_var3 import arguments, front
from mla_var3.arguments import named
from mla_var3.errors import UsageError
from mla_var3.paths import relative, write_atomic

if TYPE_CHECKING:
    from mla_var3.campaign import sweeping
    from mla_var3.campaign.cases import Case

PROG = "python -m mla_var3.app.sweep"
#: Failed cases that are named at the end.
SHOWN = 5


def sweep(
    spec: Annotated[tyro.conf.Positional[Path], named("SPEC.toml")],
    workers: int = 1,
    scheduler: str | None = None,
    again: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    dry: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> int:
    """Run the product of versions, problems, tilings and targets that a file names.

    What was run is not run again: the same command goes on where it was ended, and an edit of a
    version runs its cases anew.

    Args:
        spec: Says what to run.
        workers: Processes here, on Dask where there are several; of timed cases one per GPU.
        scheduler: Address of a Dask scheduler, whose workers run the cases.
        again: Run the cases that failed again.
        dry: Only say how many cases there are and how many of them are left.

    Returns:
        1 where a case failed.
    """
    from mla_var3.campaign import helper, sweepspec

    if workers < 1:
        raise UsageError(f"--workers={workers} is below 1")
    if scheduler is not None and workers > 1:
        raise UsageError("--workers are processes here, and --scheduler has its own; name one")
    told = sweepspec.read(spec)
    is_timed = told.mode == "event"
    # They start while torch, Dask and what the end takes are loaded here.
    if workers > 1 and not dry and (not is_timed or helper.has_gpus(workers)):
        helper.begin(workers, told.mode, told.versions)
        importlib.import_module("mla_var3.campaign.surfaces")
    from mla_var3.campaign import sweeping

    cases = sweepspec.cases_of(told, spec.name)
    found = sweeping.Sweep(told.name)
    left = found.todo(cases, again)
    print(f"{told.name}: {len(cases)} cases, {len(left)} of them to run", flush=True)
    if dry:
        return 0
    write_atomic(found.root / "spec.toml", spec.read_text(encoding="utf-8"))
    found.records()  # Of cases that were run when a sweep was killed.
    count = 0

    def done(outcome: sweeping.Outcome) -> None:
        nonlocal count
        count += 1
        print(f"[{count}/{len(left)}] {outcome.case}: {outcome}", flush=True)

    if left and (workers > 1 or scheduler is not None):
        with sweeping.client(workers, scheduler, is_timed) as client:
            how = sweeping.on_workers(client, found.sources, is_timed)
            sweeping.run(found, cases, how, done, again)
            helper.finish()  # Drivers take seconds to end, as long as what is left here.
            return _summed_up(found, cases)
    if left:
        sweeping.run(found, cases, sweeping.here(found), done, again)
    return _summed_up(found, cases)


def _summed_up(found: sweeping.Sweep, cases: Sequence[Case]) -> int:
    """Write the table and the figures; 1 where a case failed."""
    from mla_var3.campaign import surfaces

    outcomes = [outcome for case in cases if (outcome := found.outcome(case)) is not None]
    write_atomic(found.root / "table.csv", surfaces.table(outcomes))
    drawn = [surfaces.draw(one, found.root / "figures" / f"{_slug(one.title)}.svg")
             for one in surfaces.surfaces(outcomes)]  # fmt: skip
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    refused = sum(outcome.status == "refused" for outcome in outcomes)
    for outcome in failed[:SHOWN]:
        print(f"failed: {outcome.case}: {outcome.reason}")
    print(f"{len(outcomes) - len(failed) - refused} passed, {len(failed)} failed, "
          f"{refused} refused")  # fmt: skip
    figures = ", figures/" if drawn else ""
    print(f"wrote {relative(found.root)}/: table.csv, results/{figures}")
    return int(bool(failed))


def _slug(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sweep that ``argv`` (the process's by default) names; returns the exit code."""
    return int(arguments.parse(sweep, sys.argv[1:] if argv is None else argv, PROG) or 0)


if __name__ == "__main__":
    front.run("mla_var3.app.sweep:main")
