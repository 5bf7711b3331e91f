"""Writes the table of docs/emulator.md that holds the emulator's clock against measured times.

Run by ``python -m generators.committed.estimates``; a test fails where the page is out of date.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from mla_var3 import devices, front
from mla_var3.app.estimates import TARGET, Compared, cases, compared, correlation, read
from mla_var3.errors import KnowledgeError
from mla_var3.paths import repo_root, write_atomic
from mla_var3.tables import cell, code, table

PAGE = "docs/emulator.md"
BEGIN = "<!-- estimates: python -m generators.committed.estimates -->"
END = "<!-- /estimates -->"


def text(found: Sequence[Compared], device: str) -> str:
    """Verdict, and a line per design."""
    shares = correlation([(one.bound / one.estimated, one.bound / one.measured) for one in found])
    ratios = sorted(one.measured / one.estimated for one in found)
    designs = list(dict.fromkeys(one.design for one in found))
    verdict = (
        f"Of {len(found)} versions at {len(designs)} problems the clock orders shares of the bound "
        f"as an {device} does, with a rank correlation of {shares:.2f}. "
        f"Measured times are {statistics.median(ratios):.2f} times the clock's in the median, "
        f"{ratios[0]:.2f} to {ratios[-1]:.2f} times at the ends."
    )
    rows = [_row([one for one in found if one.design == name]) for name in designs]
    header = ("Design and problem", "Versions", "Rank correlation", "Measured over the clock's")
    return "\n\n".join([verdict, table(header, rows, right=header[1:], all_columns=True)])


def _row(found: Sequence[Compared]) -> tuple[str, ...]:
    ratios = sorted(one.measured / one.estimated for one in found)
    own = correlation([(one.estimated, one.measured) for one in found])
    return (
        f"{code(found[0].design)}<br>{cell(found[0].problem)}",
        str(len(found)),
        f"{own:.2f}",
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
    )


def page(old: str, words: str) -> str:
    """The page with its table written again.

    Raises:
        KnowledgeError: The page has no place for it.
    """
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise KnowledgeError(f"{PAGE} has no lines {BEGIN} and {END}, between which a table stands")
    return f"{before}{BEGIN}\n\n{words}\n\n{END}{after}"


def main() -> int:
    """Write the table of this checkout's page; returns the exit code."""
    path: Path = repo_root() / PAGE
    known = read(repo_root() / TARGET)
    words = text(compared(known, cases()), devices.load(known.device).name)
    write_atomic(path, page(path.read_text(encoding="utf-8"), words))
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    front.run("generators.committed.estimates:main")
