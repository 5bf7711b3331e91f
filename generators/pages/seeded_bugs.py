"""Makes the page of seeded bugs: what the emulator says of kernels with a mistake planted."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from generators.model.site import Site
from generators.write.page import Page
from generators.write.text import fold
from mla_var3.emulator import seeded
from mla_var3.emulator.options import MODELS
from mla_var3.emulator.seeded import BUGS, CLEAN, TABLE, Outcome, Subject
from mla_var3.tables import cell, code, table

PATH = "results/seeded-bugs.md"
_HEAD = """\
# Seeded bugs

Kernels with one synchronization mistake each, run in the [emulator](../emulator.md). A bug counts
as reported if a report of the right kind names the right lines. Where a kernel leaves out what the
PTX ISA asks for, such as `tcgen05.fence`, that is added first, so that the strict model is silent
about the kernel itself.
"""


def pages(site: Site) -> list[Page]:
    """The page; none in a checkout without the table or the list of bugs."""
    if not all((site.root / path).is_file() for path in (TABLE, BUGS)):
        return []
    found, subjects = seeded.table(site.root / TABLE), seeded.read(site.root / BUGS)
    rows = [o for o in found.outcomes if o.kernel in subjects]
    parts = [
        _HEAD,
        f"CuTe DSL {cell(found.dsl)}: {seeded.summary(rows)}.",
        _kernels(rows),
        "## Bug by bug",
        *(_bugs(name, list(some), subjects[name]) for name, some in groupby(rows, _kernel)),
    ]
    return [Page(PATH, "\n\n".join([*parts, ""]), str(BUGS), ("Results", "Seeded bugs"))]


def _kernel(outcome: Outcome) -> str:
    return outcome.kernel


def _kernels(rows: list[Outcome]) -> str:
    """A row per kernel."""
    header = ("Kernel", "For", "Bugs", *(f"Reported, {m}" for m in MODELS), "Unmodified")
    lines = []
    for name, some in groupby(rows, _kernel):
        every = list(some)
        bugs = [o for o in every if o.bug != CLEAN]
        clean = next((o for o in every if o.bug == CLEAN), None)
        by = [str(sum(m in o.reported for o in bugs)) for m in MODELS]
        lines.append((code(name), every[0].arch, str(len(bugs)), *by, _clean(clean)))
    return table(header, lines, right=header[2:-1])


def _clean(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    said = "right and clean" if outcome.ok else f"{outcome.values}, with findings"
    many = "schedules" if outcome.schedules > 1 else "schedule"
    return f"{said}, {outcome.schedules} {many}" if outcome.schedules else said


def _bugs(name: str, rows: list[Outcome], subject: Subject) -> str:
    """The bugs of one kernel."""
    header = ("Bug", "What is wrong", "Report", *(m.capitalize() for m in MODELS), "Values")
    lines = [
        (
            cell(o.bug.replace("-", " ")),
            cell(subject.bugs[o.bug].why),
            code(o.report.kind) if o.report else "",
            *("yes" if m in o.reported else "no" for m in MODELS),
            o.values,
        )
        for o in rows
        if o.bug in subject.bugs
    ]
    count = f"{len(lines)} bug{'s' * (len(lines) != 1)}"
    return fold(f"<code>{cell(name)}</code>", count, table(header, lines))


def places(site: Site) -> Mapping[str, str]:
    """The table's file."""
    return {str(TABLE): PATH} if (site.root / TABLE).is_file() else {}
