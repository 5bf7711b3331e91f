"""Renders lines of a source as a code block, found by their text; missing lines fail the build."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

from generators.model.stories import Excerpt
from generators.write.text import fence
from mla_var3.errors import KnowledgeError


def block(excerpt: Excerpt, root: Path, where: str) -> str:
    """An excerpt as a code block with the source's line numbers.

    Args:
        excerpt: What to show.
        root: Top of the checkout.
        where: What the excerpt is of, for errors.

    Raises:
        KnowledgeError: The source does not have it, or has it more than once.
    """
    first, lines = found(excerpt, root, where)
    marks = [_place(text, lines, f"{where}: {excerpt.file}") + 1 for text in excerpt.marked]
    options = {"title": Path(excerpt.file).name, "linenums": str(first)}
    if marks:
        options["hl_lines"] = " ".join(map(str, sorted(marks)))
    return fence(textwrap.dedent("\n".join(lines)), "python", **options)


def found(excerpt: Excerpt, root: Path, where: str) -> tuple[int, list[str]]:
    """Number of an excerpt's first line, and its lines."""
    path = root / excerpt.file
    if not path.is_file():
        raise KnowledgeError(f"{where}: there is no {excerpt.file}")
    text = path.read_text(encoding="utf-8")
    source = text.splitlines()
    start, end = _within(text, excerpt, where) if excerpt.within else (1, len(source))
    at = start + _place(excerpt.first, source[start - 1 : end], f"{where}: {excerpt.file}")
    if at + excerpt.lines - 1 > end:
        raise KnowledgeError(
            f"{where}: {excerpt.file} has {end - at + 1} lines from {excerpt.first!r} to the end "
            f"of {excerpt.within or 'the file'}, fewer than the {excerpt.lines} to show"
        )
    return at, source[at - 1 : at - 1 + excerpt.lines]


def _place(text: str, lines: list[str], where: str) -> int:
    """Which line holds a text; it has to be one."""
    places = [i for i, line in enumerate(lines) if text in line]
    if len(places) != 1:
        raise KnowledgeError(f"{where} has {text!r} in {len(places)} lines; the story shows one")
    return places[0]


def _within(text: str, excerpt: Excerpt, where: str) -> tuple[int, int]:
    """First and last line of a function or class, by its qualified name."""
    ranges = [span for name, span in _defined(ast.parse(text), "") if name == excerpt.within]
    if len(ranges) != 1:
        raise KnowledgeError(
            f"{where}: {excerpt.file} defines {excerpt.within} {len(ranges)} times; one is shown"
        )
    return ranges[0]


def _defined(node: ast.AST, outer: str) -> Iterator[tuple[str, tuple[int, int]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{outer}{child.name}"
            yield name, (child.lineno, child.end_lineno or child.lineno)
            yield from _defined(child, f"{name}.")
        else:
            yield from _defined(child, outer)
