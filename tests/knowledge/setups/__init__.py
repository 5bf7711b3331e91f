"""What the snippets of the knowledge need to run: one setup per snippet, by page and place."""

from __future__ import annotations

import io
import re
import textwrap
import tokenize
from dataclasses import dataclass

#: ``# snippet``, or ``# snippet 2-5`` for some of its lines, counted from 1.
MARK = re.compile(r"^( *)# snippet(?: (\d+)(?:-(\d+))?)?$", re.MULTILINE)


@dataclass(frozen=True)
class Setup:
    """A program with a snippet in it.

    Attributes:
        code: The program; the lines of the snippet take the places of its marks.
        fills: What stands for each ``...`` of the snippet, in order; what is missing stays.
        less: Pieces of the snippet and the smaller ones that run in their place.
        emulated: Whether it is a CuTe program that the emulator runs.
        compiled: Whether it is a CuTe program that is only compiled; it has a process of its own,
            since the DSL reads arch and folder as it is imported.
        needs_gpu: Whether it runs only where there is a GPU.
    """

    code: str
    fills: tuple[str, ...] = ()
    less: tuple[tuple[str, str], ...] = ()
    emulated: bool = False
    compiled: bool = False
    needs_gpu: bool = False

    def program(self, snippet: str) -> str:
        """The whole program.

        Raises:
            ValueError: The setup does not fit the snippet, or leaves a line of it out.
        """
        for old, new in self.less:
            if old not in snippet:
                raise ValueError(f"the snippet has no {old!r}")
            snippet = snippet.replace(old, new)
        lines = filled(snippet, self.fills)
        left = {n for n, line in enumerate(lines, 1) if _runs(line)}

        def put(mark: re.Match[str]) -> str:
            first = int(mark[2] or 1)
            last = int(mark[3] or mark[2] or len(lines))
            left.difference_update(range(first, last + 1))
            text = textwrap.dedent("\n".join(lines[first - 1 : last]))
            return textwrap.indent(text, mark[1]).rstrip()

        text = MARK.sub(put, self.code)
        if left:
            raise ValueError(f"lines {sorted(left)} of the snippet are nowhere in the program")
        return text


def _runs(line: str) -> bool:
    return line.partition("#")[0].strip() not in ("", "...")


def filled(snippet: str, fills: tuple[str, ...]) -> list[str]:
    """The lines of a snippet, each ``...`` replaced by the next of the fills.

    Raises:
        ValueError: There are more fills than places.
    """
    lines = snippet.splitlines()
    # Of the tokens of a snippet the last come first, so that places before them stay.
    places = [
        token.start
        for token in tokenize.generate_tokens(io.StringIO(snippet).readline)
        if token.string == "..."
    ]
    if len(fills) > len(places):
        raise ValueError(f"{len(fills)} fills for {len(places)} places")
    for (row, column), fill in reversed(list(zip(places, fills, strict=False))):
        line = lines[row - 1]
        indented = textwrap.indent(fill, " " * column).lstrip()
        lines[row - 1] = line[:column] + indented + line[column + 3 :]
    return lines
