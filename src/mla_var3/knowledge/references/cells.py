"""Reads the code snippets of a reference from a Python file, each with the names that it shows."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from mla_var3.paths import relative

#: What editors know as the start of a cell.
MARK = "# %% "


@dataclass(frozen=True)
class Cell:
    """A snippet.

    Attributes:
        names: What it shows.
        code: Its lines, without the heading.
        file: Its file, from the top of the checkout.
        line: Line of its first line of code.
        whole: Whether it is a whole script without headings, which shows whatever it uses.
    """

    names: tuple[str, ...]
    code: str
    file: str
    line: int
    whole: bool = False

    def unused(self) -> list[str]:
        """Names of the heading that the code does not write."""
        return [name for name in self.names if not _written(name.rpartition(".")[2], self.code)]


def _written(name: str, code: str) -> bool:
    if name == "__getitem__":
        return "[" in code
    return re.search(rf"\b{re.escape(name)}\b", code) is not None


def read(file: Path, root: Path) -> list[Cell]:
    """The cells of a file, in order; a file without headings is one.

    Args:
        file: A Python file.
        root: Top of the checkout.
    """
    text = file.read_text(encoding="utf-8")
    if f"\n{MARK}" not in text:
        body = ast.parse(text).body
        first = body[1].lineno if ast.get_docstring(ast.parse(text)) else 1
        code = "\n".join(text.splitlines()[first - 1 :])
        return [Cell((), code, relative(file, root), first, whole=True)]
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith(MARK)]
    starts = [number for number in heads if number - 1 not in heads]  # A heading may go on.
    found = []
    for start, end in zip(starts, [*starts, len(lines)][1:], strict=True):
        first = next(number for number in range(start, end + 1) if number not in heads)
        names = [name for line in lines[start:first] for name in line.removeprefix(MARK).split()]
        code = "\n".join(lines[first:end]).strip("\n")
        found.append(Cell(tuple(names), code, relative(file, root), first + 1))
    return found
