"""Command ``contribute``: times a standard set on a GPU of yours, or accepts what others timed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import tyro

from mla_var3 import arguments, front
from mla_var3.arguments import named
from mla_var3.paths import out_dir, relative, write_atomic

if TYPE_CHECKING:
    from mla_var3.evidence import Run

PROG = "python -m mla_var3.app.contribute"


def contribute(
    file: Annotated[tyro.conf.Positional[Path | None], named("[FILE.json]")] = None,
    by: str = "",
) -> None:
    """Time a standard set on the GPU here in at most ten minutes, as one file; or accept a file.

    The file holds the records with device, clocks, power and versions. It is checked as all records
    are before it is written, and again before it is put among them.

    Args:
        file: A contributed run, to be put among the records.
        by: Who contributes it, as pages should say it.
    """
    from mla_var3.campaign import contributing

    if file is not None:
        found = contributing.read(file)
        for path in contributing.accept(found, file.name, judge):
            print(f"wrote {relative(path)}")
        return
    found = contributing.measure(by, lambda text: print(f"· {text}", flush=True))
    about = found.about
    for number, run in enumerate(found.runs()):
        for fault in judge(run, run.folder / f"{run.stem}.json"):
            print(f"fault: files.{number}: {fault}")
    path = out_dir() / contributing.FOLDER / f"{about.device}-{about.run}.json"
    write_atomic(path, contributing.text(found))
    for text in about.left_out:
        print(f"left out: {text}")
    records = sum(len(run.records) for run in found.runs())
    print(f"wrote {relative(path)}: {records} records of {about.name} in {about.seconds:.0f} s")
    print("\nA pull request of it:\n")
    print(f"git switch -c measured-{about.device}-{about.run}")
    print(f"nox -s contribute -- {relative(path)}")
    print(f'git add results && git commit -m "feat(records): a run on {about.device}"')


def judge(run: Run, place: PurePosixPath) -> list[str]:
    """What is wrong with a run file at its place, as ``records verify`` would say it."""
    from mla_var3 import evidence
    from mla_var3.app import verify
    from mla_var3.evidence import integrity

    found = list(integrity.file_faults(run, Path(place)))
    for record in run.records:
        found += verify.faults(record, evidence.state_of(record).is_stale)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run what ``argv`` (the process's by default) asks for; returns the exit code."""
    arguments.parse(contribute, sys.argv[1:] if argv is None else argv, PROG)
    return 0


if __name__ == "__main__":
    front.run("mla_var3.app.contribute:main")
