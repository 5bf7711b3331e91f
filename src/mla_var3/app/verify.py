"""Verifies record files: lists faults against repository, devices, bounds and other records.

``app.records`` prints the verdicts for ``records verify``; ``app.refuting`` has further checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mla_var3 import evidence, languages, roofline
from mla_var3.app import refuting
from mla_var3.errors import HyperMlaError, RecordError, UnknownNameError
from mla_var3.evidence import Passed, Record, Run, builds, contradictions, integrity, revisions
from mla_var3.evidence.sources import changed
from mla_var3.paths import repo_root, results_dir
from mla_var3.runtime import costs, registry


@dataclass(frozen=True)
class Verdict:
    """What was found about one file, or one record.

    Attributes:
        name: The file below the results folder, or the record's address and run.
        faults: What is wrong, one sentence each.
        record: The record; None for a file as a whole.
        state: Whether it is of what today's sources compile to; None for a file as a whole.
    """

    name: str
    faults: tuple[str, ...]
    record: Record | None = None
    state: evidence.State | None = None


def verify(root: Path) -> Iterator[Verdict]:
    """A verdict on each file below ``root``, in path order, and on each of its records."""
    seen: set[str] = set()
    revised = False
    for path in evidence.files(root):
        place = path.relative_to(root)
        try:
            run = evidence.read(path)
        except RecordError as error:
            yield Verdict(place.as_posix(), (str(error),))
            continue
        yield Verdict(place.as_posix(), tuple(file_faults(run, place, path)))
        for record in run.records:
            name = f"{evidence.address(record)}@{record.run}"
            twice = ["another file of its run states the same"] if name in seen else []
            seen.add(name)
            revised = revised or record.workload is not None
            yield _judged(record, name, twice)
    yield from tables(root, revised)


def _judged(record: Record, name: str, found: list[str]) -> Verdict:
    """The verdict on a record; what cannot even be judged is a fault of it, and of no other."""
    try:
        state = evidence.state_of(record)
        found.extend(faults(record, state.is_stale))
    except HyperMlaError as error:
        return Verdict(name, (*found, f"it cannot be judged: {error}"), record)
    return Verdict(name, tuple(found), record, state)


def tables(root: Path, revised: bool) -> Iterator[Verdict]:
    """A verdict on each table that records are held against and that is broken or missing.

    Args:
        root: The results folder.
        revised: Whether a record names a revision of its workload.
    """
    if root.resolve() != results_dir().resolve() or not (repo_root() / "kernels").is_dir():
        return  # Elsewhere lie records alone, and the checkout's tables are asked.
    wanted: dict[Path, Callable[[Path], object]] = {}
    if revised:
        wanted[revisions.path_of(root)] = revisions.read
    for package, layer, design in sorted(_designs(evidence.files(root), root)):
        path = builds.path_of(package, layer, design, root)
        if path.is_file():  # Without one, records of other sources than today's are stale.
            wanted[path] = builds.read
    for path, read in wanted.items():
        place = path.relative_to(root).as_posix()
        if not path.is_file():
            yield Verdict(place, ("it is missing, and records are held against it",))
            continue
        try:
            read(path)
        except RecordError as error:
            yield Verdict(place, (str(error),))


def _designs(files: Iterable[Path], root: Path) -> set[tuple[str, str, str]]:
    """Package, workload and design of files of records, where this project has the design."""
    there = {path.relative_to(root).parts[-4:-1] for path in files}
    known = {(each.package, each.layer, each.design) for each in registry.versions()}
    return {key for key in known if key in there}


def sweep(root: Path) -> list[Path]:
    """Remove what killed runs left half-written anywhere below ``root``; returns what went."""
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    return [path for folder in folders for path in evidence.sweep(folder)]


def file_faults(run: Run, place: Path, path: Path) -> Iterator[str]:
    """What is wrong with a file as a whole, one sentence each.

    Args:
        run: What it holds.
        place: Where it lies below the results folder.
        path: The file.
    """
    yield from integrity.file_faults(run, place)
    yield from unlike_the_tools(run, path)


def faults(record: Record, stale: bool) -> Iterator[str]:
    """What is wrong with a record, one sentence each.

    Args:
        record: The record.
        stale: Whether its code or its workload has changed since.
    """
    yield from integrity.faults(record)
    yield from contradictions.faults(record)
    yield from unknown_names(record)
    yield from unlike_the_device(record)
    yield from refuting.beyond_the_arch(record)
    yield from refuting.beyond_the_device(record)
    yield from unlike_the_version(record, stale)
    yield from below_the_bound(record)


def unlike_the_tools(run: Run, path: Path) -> Iterator[str]:
    """A field that was taken away or added by hand, which a default would hide when reading."""
    written = json.loads(path.read_text(encoding="utf-8"))
    if written.get("schema_version") != evidence.SCHEMA_VERSION:
        return  # integrity says so.
    if (where := difference(json.loads(run.text()), written)) is not None:
        yield f"{where} is not as this tool writes it"


def difference(ours: Any, theirs: Any, where: str = "") -> str | None:
    """The first place at which two JSON values differ; the content hash aside."""
    if ours == theirs:
        return None
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs = [(key, ours.get(key), theirs.get(key)) for key in [*ours, *theirs]]
        pairs = [pair for pair in pairs if pair[0] != "content_sha256"]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = [(str(i), a, b) for i, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    else:
        return where
    found = (difference(a, b, f"{where}.{key}".lstrip(".")) for key, a, b in pairs)
    return next((place for place in found if place is not None), None)


def unknown_names(record: Record) -> Iterator[str]:
    """A device without a file, a language that does not exist, tools that were left out."""
    if record.device is not None and roofline.device_of(record) is None:
        yield f"device {record.device.key} has no file in knowledge/devices"
    if record.kernel.language not in languages.languages():
        yield f"language {record.kernel.language} does not exist"
    if not record.toolchain and not isinstance(record.outcome, evidence.Skipped):
        yield "it names no tool of the toolchain that made it"


def unlike_the_device(record: Record) -> Iterator[str]:
    """A name or arch that the device of that key does not have."""
    ran, known = record.device, roofline.device_of(record)
    if ran is None or known is None:
        return
    if ran.name not in known.torch_names:
        yield f"a {ran.name} ran it, and {ran.key} is not the file of that device"
    if ran.arch != known.sm:
        yield f"it ran on {ran.arch}, and {ran.key} is {known.sm}"


def unlike_the_version(record: Record, stale: bool) -> Iterator[str]:
    """Faults: what the record's version states differently for the same problem.

    Args:
        record: The record.
        stale: Whether its code or workload has changed since, and so perhaps what it takes.
    """
    kernel = record.kernel
    try:
        version = registry.find(f"{kernel.design}@{kernel.language}", kernel.version)
    except UnknownNameError as error:
        yield str(error)
        return
    if (kernel.layer, kernel.package) != (version.layer, version.package):
        yield f"{version.key} is of {version.layer} in {version.package}"
    if kernel.sources and not any(Path(name).name == version.path.name for name in kernel.sources):
        yield f"none of its sources is of {version.key}"
    if record.workload is not None and record.workload not in revisions.known():
        yield f"its workload's revision {record.workload} is in no table"
    try:
        plan = version.plan_of(record.problem)
    except HyperMlaError as error:
        # Older sources may have had fields that are gone, and compile to the same code.
        if not stale and not changed(kernel.sources):
            yield f"{version.key} does not take its problem: {error}"
        return
    if plan.slug() != record.slug:
        yield f"its problem is {plan.slug()}, and its slug {record.slug}"
    if not stale:
        yield from refuting.unlike_the_workload(record, version)
        yield from refuting.unlike_the_launch(record, version)


def below_the_bound(record: Record) -> Iterator[str]:
    """Times that no kernel can reach."""
    if not isinstance(outcome := record.outcome, Passed):
        return
    timed = [("the whole", None, outcome.total)]
    timed += [(f"stage {s.name}", s, s.duration) for s in outcome.stages]  # type: ignore[misc]
    for name, stage, duration in timed:
        least = costs.bound(record, stage) if duration is not None else None
        if duration is not None and least is not None and duration.min_us < least.time_us:
            yield (
                f"{name} took {duration.min_us:g} us, below the physical bound on {least.device}: "
                f"{least.explain()}"
            )
