"""Decides whether a record is fresh, code changed or toolchain moved, against today's sources.

Equal sources are the fast path. Where they differ, the committed table of fingerprints tells
whether machine code and launch do (``evidence.builds``), or the trial beside it of sources that are
edited since (``app.settling``); reading them takes no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mla_var3.blobs import once_per_content
from mla_var3.evidence import builds, revisions
from mla_var3.evidence.builds import CALL, Build, Case, Table
from mla_var3.evidence.fingerprint import differences
from mla_var3.evidence.model import Passed, Record
from mla_var3.evidence.sources import changed
from mla_var3.paths import out_dir

Kind = Literal["fresh", "code changed", "toolchain moved"]
#: What puts the table right.
MEND = "run `nox -s codes -- write`"


@dataclass(frozen=True)
class State:
    """What a record is worth today.

    Attributes:
        kind: ``fresh``: today's version, compiled by today's tools, is what ran. ``code changed``:
            its machine code, its launch or its workload is another. ``toolchain moved``: the code
            is that of today's version, and was made by other tools.
        reasons: What differs, one sentence each; none when fresh.
    """

    kind: Kind
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.kind + (f": {'; '.join(self.reasons)}" if self.reasons else "")

    @property
    def is_stale(self) -> bool:
        """Whether it is no evidence for today's version: the only state that is warned of."""
        return self.kind == "code changed"


def state_of(record: Record) -> State:
    """The state of a record."""
    if reasons := [*code_changes(record), *_workload_changes(record)]:
        return State("code changed", tuple(reasons))
    if moved := toolchain_changes(record):
        return State("toolchain moved", tuple(moved))
    return State("fresh")


def is_stale(record: Record) -> bool:
    """Whether the code, the launch or the workload of a record is no longer today's."""
    return state_of(record).is_stale


def case_of(record: Record) -> Case | None:
    """The case that a record ran; None where it ran nothing that is compiled."""
    if not isinstance(record.outcome, Passed) or record.arch is None:
        return None
    return Case(
        device=record.device.key if record.device is not None else record.target,
        problem=record.problem,
        tilings=tuple(stage.tiling for stage in record.outcome.stages),
    )


def code_changes(record: Record) -> list[str]:
    """How a version's machine code and launches differ today from those of a record."""
    kernel = record.kernel
    if not kernel.sources:
        return ["it does not name its sources"]
    other = changed(kernel.sources)
    known = _known(record) if other else _table(record).versions.get(kernel.version)
    if known is None:
        what = "changed, and what it compiles to is not in the table"
        return [f"{_some(other)} {what}"] if other else []
    build = known.build_of(kernel.sources, record.time)
    if not other and build in (None, known.today):
        return []
    if other and (open_ := known.differing()):
        return [f"{_some(open_)} changed since it was last compiled: {MEND}"]
    if build is known.today and kernel.sources == known.compiled_sources:
        return []  # Of what was compiled, comments alone have changed.
    if build is None:
        return [f"{_some(other)} changed, and its own sources were never compiled: {MEND}"]
    case = case_of(record)
    return _between(build, known.today, case) if case is not None or build != known.today else []


def _between(build: Build, today: Build, case: Case | None) -> list[str]:
    """What differs between two builds at a case."""
    ways = [case, CALL] if case is not None else [CALL]
    for way in ways:
        if (old := build.find(way)) is not None and (new := today.find(way)) is not None:
            if error := new.error or old.error:
                return [f"it does not compile any more: {error}"]
            return differences(
                list(old.stages.values()), list(new.stages.values()), list(new.stages)
            )
    return [f"its sources changed, and nothing of it was compiled at its problem: {MEND}"]


def _workload_changes(record: Record) -> list[str]:
    """How the workload of a record differs from today's."""
    known = _table(record).versions.get(record.kernel.version)
    return list(revisions.changes(record, known.problem)) if known is not None else []


def toolchain_changes(record: Record) -> list[str]:
    """How the tools that made a record differ from those of the table.

    A version that is stated shorter is the same: older records have fewer digits of it.
    """
    theirs = _table(record).toolchain
    ours = record.toolchain
    return [
        f"{name} {ours[name]} -> {theirs[name]}"
        for name in sorted(ours.keys() & theirs.keys())
        if not f"{theirs[name]}.".startswith(f"{ours[name]}.")
    ]


def _some(names: list[str]) -> str:
    """The first of several files, and how many more there are."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return names[0] + more


def _known(record: Record) -> builds.Version | None:
    """What is known of a record's version: as committed, or as tried where it was edited since."""
    committed = _table(record).versions.get(record.kernel.version)
    if committed is None or not committed.differing():
        return committed
    tried = _table(record, out_dir()).versions.get(record.kernel.version)
    return committed if tried is None or tried.differing() else tried


def _table(record: Record, root: Path | None = None) -> Table:
    kernel = record.kernel
    path = builds.path_of(kernel.package, kernel.layer, kernel.design, root)
    return _read(path) if path.is_file() else Table()


@once_per_content  # Hundreds of records ask for the same few tables.
def _read(path: Path) -> Table:
    return builds.read(path)
