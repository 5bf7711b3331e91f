"""Integrity checks of a record: its content hash, and its sources in the repository's history.

The content hash catches an edit, a slip of the hand, a broken merge. It does not prove who made
the record, nor that the run took place: whoever can run this tool can seal a record of invented
numbers. What speaks against that is the rest: the sources exist in the repository, the times stay
above the physical bound (``mla_var3.app.verify``), parts of it do not exclude each other
(``contradictions``), and anybody with the device can run it again. Nor does a fingerprint prove
what ran: it says what the named sources compile to here, and, where a compiler makes other machine
code of the same from run to run, only what that compiler is given.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from mla_var3.archs import base_arch
from mla_var3.evidence.model import CPU, Passed, Record
from mla_var3.evidence.runs import Run
from mla_var3.evidence.sources import git, kernels_tracked

#: How far another machine's clock may be ahead.
CLOCK_SLACK = datetime.timedelta(days=1)
#: No record is older than the project.
EARLIEST = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
#: What tells a file from another that the same process began in the same second.
_NUMBER = re.compile(r"-\d+$")
MODES_ON_A_GPU = ("event", "annotation", "ncu", "nsys")


def file_faults(run: Run, place: Path) -> Iterator[str]:
    """What is wrong with a file as a whole, one sentence each.

    Args:
        run: What it holds.
        place: Where it lies below the results folder.
    """
    if not run.content_sha256:
        yield "it has no content_sha256: `records migrate` renews files of an older schema"
    elif run.content_sha256 != run.digest():
        yield "its content differs from its content_sha256: it was edited after it was written"
    names = (place.stem, _NUMBER.sub("", place.stem))
    wanted = run.folder / f"{run.stem}.json"
    if place.parent.as_posix() != str(run.folder) or run.stem not in names:
        yield f"it says that it belongs to {wanted}"


def faults(record: Record) -> Iterator[str]:
    """What is wrong with a record, one sentence each."""
    yield from _target_faults(record)
    if record.outcome.status == "passed":
        assert isinstance(record.outcome, Passed)
        yield from _outcome_faults(record, record.outcome)
    yield from _provenance_faults(record)


def _target_faults(record: Record) -> Iterator[str]:
    if record.device is not None and record.device.key != record.target:
        yield f"it was run on {record.device.key} and lies under {record.target}"
    on_gpu = record.device is not None
    if on_gpu and (record.is_static or record.target == CPU):
        yield f"target {record.target} has no device, and the record names {record.device}"
    if not on_gpu and not record.is_static and record.target != CPU:
        yield f"it lies under device {record.target} and names no device"
    if (record.mode == "static") != record.is_static:
        yield f"mode {record.mode} and target {record.target} do not go together"
    if record.mode in MODES_ON_A_GPU and not on_gpu:
        yield f"mode {record.mode} needs a device, and the record names none"


def _outcome_faults(record: Record, outcome: Passed) -> Iterator[str]:
    if outcome.correctness is not None and outcome.correctness.status == "failed":
        yield "it passed, and its check failed"
    if (checked := outcome.correctness) is not None:
        if checked.max_relative_error is None:
            yield "it passed with an error that is not finite"
        elif (worst := checked.max_relative_error) > checked.tolerance:
            yield f"it passed with an error of {worst:g}, above its tolerance {checked.tolerance:g}"
    if record.mode in MODES_ON_A_GPU and outcome.total is None:
        yield f"mode {record.mode} states no time of the whole"
    if record.mode in ("static", "disabled") and outcome.total is not None:
        yield f"mode {record.mode} takes no times, and the record states one"
    for stage in outcome.stages:
        facts = stage.static
        if facts is None:
            continue
        if base_arch(facts.arch) != base_arch(record.arch or ""):
            yield f"stage {stage.name} was compiled for {facts.arch}, not for {record.arch}"
        if facts.ok and not (facts.instructions and facts.threads_per_block):
            yield f"stage {stage.name} has static facts without instructions or threads"


def _provenance_faults(record: Record) -> Iterator[str]:
    if record.time > datetime.datetime.now(datetime.UTC) + CLOCK_SLACK:
        yield f"it was made at {record.time}, which is yet to come"
    if record.time < EARLIEST:
        yield f"it was made at {record.time}, before there was any of this"
    if not record.kernel.sources:
        yield "it names no sources"
    known = _objects(tuple(sorted(record.kernel.sources.values())))
    if known is None:
        return  # No git here: ``repository_known`` says so once for all records.
    for name, blob in record.kernel.sources.items():
        if known[blob] != "blob":
            yield f"source {name} ({blob[:12]}) is not in the repository's history"
    if record.git is None:
        return
    commit = record.git.commit
    if (_objects((commit,)) or {}).get(commit) != "commit":
        yield f"commit {commit[:12]} is not in the repository"
    elif not record.git.dirty:
        there = _tree(commit)
        for name, blob in record.kernel.sources.items():
            if known[blob] == "blob" and there.get(name) != blob:
                yield f"source {name} of commit {commit[:12]} is not {blob[:12]}"


def repository_known() -> bool:
    """Whether sources can be looked up: git is there, with the kernels' whole history."""
    return kernels_tracked() and git("rev-parse", "--is-shallow-repository") == "false"


@functools.cache
def _tree(commit: str) -> dict[str, str]:
    """Blob of each file of a commit."""
    lines = (git("ls-tree", "-r", "-z", "--full-tree", commit) or "").split("\0")
    pairs = (line.split("\t", 1) for line in lines if line)
    return {name: about.split()[2] for about, name in pairs}


@functools.cache
def _objects(names: tuple[str, ...]) -> dict[str, str] | None:
    """Kind of each git object, ``missing`` for what is not there; None without a whole history."""
    if not repository_known():
        return None
    there = _reachable(git("rev-parse", "HEAD") or "HEAD")
    asked = [name for name in names if name in there]
    told = git("cat-file", "--batch-check", input="\n".join(asked) + "\n") if asked else ""
    if told is None:
        return None
    kinds = {n: line.split()[1] for n, line in zip(asked, told.splitlines(), strict=True)}
    return dict.fromkeys(names, "missing") | kinds


@functools.cache
def _reachable(head: str) -> frozenset[str]:
    """What a commit's history holds, which is what a clone gets: no commit since rewritten."""
    lines = (git("rev-list", "--objects", head) or "").splitlines()
    return frozenset(line.split(" ", 1)[0] for line in lines)
