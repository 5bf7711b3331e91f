"""Parts of ``bench --set=NAME``: a set's problems, plans for each, ratios to a library's time.

``app.benching`` runs the plans. ``Ratios`` prints, for each version, the geometric mean and the
largest of its times over the first library kernel's.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from mla_var3.app import winner
from mla_var3.errors import UnknownNameError, UsageError
from mla_var3.evidence import Passed, Record
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version
from mla_var3.workloads import Workload

#: How far above the library's time a problem is not to be.
ABOVE = 1.02


def problems(workload: Workload, name: str) -> Sequence[Mapping[str, Any]]:
    """The problems of a set.

    Raises:
        UnknownNameError: The workload has no such set.
    """
    if name not in workload.sets:
        raise UnknownNameError("set of problems", name, sorted(workload.sets))
    return workload.sets[name]()


def plans(
    versions: Sequence[Version], problem: Mapping[str, Any]
) -> list[tuple[Version, KernelPlan]]:
    """Plans of the versions that have all of the problem's fields.

    Raises:
        UsageError: None has.
    """
    found = []
    for version in versions:
        known = {f.name for f in version.plan_class().option_fields()}
        if set(problem) <= known:
            plan = version.plan_of(problem)
            plan.validate()
            found.append((version, plan))
    if not found:
        raise UsageError(f"none of the designs has the fields {', '.join(problem)} of the set")
    return found


@dataclass
class Ratios:
    """Times of versions against the first library's, over the problems of a set.

    Attributes:
        flushed: By version, with an L2 flush before each launch.
        sustained: By version, back to back.
        slower: What was slower by more than ``ABOVE``.
    """

    flushed: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    sustained: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    slower: list[str] = field(default_factory=list)

    def add(self, rows: Sequence[tuple[Version, Record | None]]) -> None:
        """The records of one problem, all of one run."""
        base = next((r for v, r in rows if v.language == "library" and _timed(r)), None)
        if base is None:
            return
        for version, record in rows:
            if record is base or record is None or not _timed(record):
                continue
            for into, of in ((self.flushed, _flushed), (self.sustained, _sustained)):
                mine, theirs = of(record), of(base)
                if mine is None or theirs is None:
                    continue
                into[version.key].append(mine / theirs)
                if mine > ABOVE * theirs:
                    self.slower.append(f"{version.key} {record.slug}: {mine / theirs:.2f}")

    def print(self, console: Console) -> None:
        """Geometric means and the largest ratio of each version."""
        table = Table(title="time against the library's, over the set")
        for column in ("version", "problems", "flushed", "largest", "back to back", "largest"):
            table.add_column(column)
        for key, flushed in self.flushed.items():
            cells = [f"{x:.3f}" for x in _summary(flushed)]
            cells += [f"{x:.3f}" for x in _summary(self.sustained[key])]
            table.add_row(key, str(len(flushed)), *(cells or ("", "")))
        console.print(table)
        for line in self.slower:
            console.print(f"more than {ABOVE:g} of the library's time: {line}", markup=False)


def _summary(ratios: Sequence[float]) -> tuple[float, ...]:
    if not ratios:
        return ()
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)), max(ratios)


def _timed(record: Record | None) -> bool:
    return record is not None and isinstance(record.outcome, Passed)


def _flushed(record: Record) -> float | None:
    return winner.median(record)


def _sustained(record: Record) -> float | None:
    energy = record.outcome.energy if isinstance(record.outcome, Passed) else None
    return energy.launch_us if energy else None
