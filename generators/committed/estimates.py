"""Writes the table of docs/emulator-trust.md: the emulator's clock beside measured times.

Run by ``python -m generators.committed.estimates``; a test fails where the page is out of date.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from generators.committed.places import filled
from mla_var3 import devices, front
from mla_var3.app.estimates import TARGET, Compared, cases, compared, correlation, read
from mla_var3.paths import repo_root, write_atomic
from mla_var3.tables import cell, code, table

PAGE = "docs/emulator-trust.md"
BEGIN = "<!-- estimates: python -m generators.committed.estimates -->"
END = "<!-- /estimates -->"


def text(found: Sequence[Compared]) -> str:
    """Verdict, a line per design that was measured, and what the clock says of the others."""
    timed = [(one, one.measured) for one in found if one.measured is not None]
    shares = correlation([(one.bound / one.estimated, one.bound / us) for one, us in timed])
    ratios = sorted(us / one.estimated for one, us in timed)
    designs = list(dict.fromkeys(one.design for one, _ in timed))
    verdict = (
        f"Of {len(timed)} versions at {len(designs)} problems the clock orders shares of the bound "
        f"as an {devices.load(timed[0][0].device).name} does, with a rank correlation of "
        f"{shares:.2f}. Measured times are {statistics.median(ratios):.2f} times the clock's in "
        f"the median, {ratios[0]:.2f} to {ratios[-1]:.2f} times at the ends."
    )
    rows = [_row([(one, us) for one, us in timed if one.design == name]) for name in designs]
    header = ("Design and problem", "Versions", "Rank correlation", "Measured over the clock's")
    others = [one for one in found if one.measured is None]
    names = " and ".join(dict.fromkeys(devices.load(one.device).name for one in others))
    parts = [verdict, table(header, rows, right=header[1:], all_columns=True)]
    if others:
        lines = [_other(one) for one in others]
        header = ("Version and problem", "us by the clock", "bound, us", "share of the bound")
        parts += [f"Of {names} there is no time to hold it against:"]
        parts += [table(header, lines, right=header[1:], all_columns=True)]
    return "\n\n".join(parts)


def _row(found: Sequence[tuple[Compared, float]]) -> tuple[str, ...]:
    ratios = sorted(us / one.estimated for one, us in found)
    pairs = [(one.estimated, us) for one, us in found]
    # A clock that gives all the same time says nothing of their order.
    own = f"{correlation(pairs):.2f}" if len({clock for clock, _ in pairs}) > 1 else "none"
    first = found[0][0]
    return (
        f"{code(first.design)}<br>{cell(first.problem)}",
        str(len(found)),
        own,
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
    )


def _other(one: Compared) -> tuple[str, ...]:
    share = one.bound / one.estimated
    name = f"{code(f'{one.design} {one.version}')}<br>{cell(one.problem)}"
    return name, f"{one.estimated:.1f}", f"{one.bound:.1f}", f"{share:.2f}"


def page(old: str, words: str) -> str:
    """The page with its table written again.

    Raises:
        KnowledgeError: The page has no place for it.
    """
    return filled(PAGE, old, BEGIN, END, words)


def main() -> int:
    """Write the table of this checkout's page; returns the exit code."""
    path: Path = repo_root() / PAGE
    known = read(repo_root() / TARGET)
    words = text(compared(known, cases()))
    write_atomic(path, page(path.read_text(encoding="utf-8"), words))
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    front.run("generators.committed.estimates:main")
