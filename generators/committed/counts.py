"""Writes the table of docs/emulator-trust.md: the emulator's counts beside those of Nsight Compute.

Run by ``python -m generators.committed.counts``; a test fails where the page is out of date.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from generators.committed.places import filled
from mla_var3 import devices, front
from mla_var3.app.counts import AGREE, TARGET, Compared, Row, Table, read
from mla_var3.paths import repo_root, write_atomic
from mla_var3.tables import cell, code, table

PAGE = "docs/emulator-trust.md"
BEGIN, END = "<!-- counts: python -m generators.committed.counts -->", "<!-- /counts -->"


def text(found: Table) -> str:
    """Verdict, table, and why what differs does."""
    rows = [row for one in found.kernels for row in one.rows]
    equal, near = sum(not row.difference for row in rows), sum(row.agrees for row in rows)
    more = f", and {near - equal} more are within {AGREE:.0%}" if near > equal else ""
    device = devices.load(found.device).name
    verdict = (
        f"{equal} of {len(rows)} counts are equal to those of an {device}{more}. "
        f"{_ptx(found.kernels)}"
    )
    names = list(dict.fromkeys(row.quantity for row in rows))
    shown = [_line(found.kernels, name) for name in names]
    header = ("Count", *(f"{code(one.kernel)}<br>{cell(one.problem)}" for one in found.kernels))
    reasons = {row.quantity: row.why for row in rows if not row.agrees}
    why = [f"- {cell(name)}: {cell(reason)}." for name, reason in reasons.items()]
    parts = [verdict, table(header, shown, right=header[1:], all_columns=True)]
    return "\n\n".join([*parts, *(["What differs, and why:", "\n".join(why)] if why else [])])


def _ptx(kernels: Sequence[Compared]) -> str:
    other = [one.kernel for one in kernels if not one.same_ptx]
    if not other:
        return "Each kernel was emulated from the PTX that the GPU's code was assembled from."
    return f"The PTX of {' and '.join(other)} was another compiler's."


def _line(kernels: Sequence[Compared], name: str) -> tuple[str, ...]:
    """A quantity and its cell of each kernel."""
    found = [next((row for row in one.rows if row.quantity == name), None) for one in kernels]
    return (cell(name), *(_cell(row) if row else "" for row in found))


def _cell(row: Row) -> str:
    if row.emulated == row.counted:
        return f"{row.counted:,}"
    return f"{row.emulated:,} against {row.counted:,}"


def page(old: str, found: Table) -> str:
    """The page with its table written again.

    Raises:
        KnowledgeError: The page has no place for it.
    """
    return filled(PAGE, old, BEGIN, END, text(found))


def main() -> int:
    """Write the table of this checkout's page; returns the exit code."""
    path: Path = repo_root() / PAGE
    found = read(repo_root() / TARGET)
    write_atomic(path, page(path.read_text(encoding="utf-8"), found))
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    front.run("generators.committed.counts:main")
