"""Writes tables in Markdown and CSV, and makes text safe to stand in their cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

_MARKUP = str.maketrans({
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "{": "&#123;", "}": "&#125;",
    "[": "&#91;", "]": "&#93;", "*": "&#42;", "_": "&#95;", "`": "&#96;", "$": "&#36;",
    "\\": "&#92;",
})  # fmt: skip


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Collection[str] = (),
    all_columns: bool = False,
) -> str:
    """A Markdown table; empty text without rows.

    Args:
        header: Titles of the columns.
        rows: Cells, as Markdown: text that nobody wrote as such goes through ``cell`` first.
        right: Titles of the columns that are set flush right.
        all_columns: Whether columns that are empty throughout stay; else they are left out.
    """
    lines = [[_one_line(value) for value in row] for row in rows]
    if not lines:
        return ""
    kept = [i for i in range(len(header)) if all_columns or any(line[i] for line in lines)]
    rule = ["--:" if title in right else "---" for title in header]
    shown = ([line[i] for i in kept] for line in (header, rule, *lines))
    return "\n".join(f"| {' | '.join(line)} |" for line in shown)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def _one_line(value: object) -> str:
    """A cell without line ends and bare pipes, either of which would end it."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(str(value).split("\n")))


def cell(text: object) -> str:
    """``text`` as plain words inside Markdown or HTML: no markup of it is interpreted."""
    return " ".join(str(text).translate(_MARKUP).split())


def code(text: str) -> str:
    """``text`` as inline code, or as plain words where it would end the code or the cell."""
    return f"`{text}`" if re.fullmatch(r"[\w .,:=/+()\[\]-]+", text) else cell(text)


def axes(problem: Mapping[str, object]) -> str:
    """Axes as people read them; what is off or open is left out."""
    shown = {
        name: value for name, value in problem.items() if value is not None and value is not False
    }
    return " ".join(
        name if value is True else value if isinstance(value, str) else f"{name}={value}"
        for name, value in shown.items()
    )


def microseconds(time: float, digits: int = 2) -> str:
    """A time with its decimals; below a microsecond with two digits, since 0.00 says nothing."""
    return f"{time:,.{digits}f}" if time >= 1 else f"{time:.2g}"
