"""Two versions side by side: every line as it is in its file, moved code and renamings marked.

Lines are matched with the earlier version's names turned into the later one's, so that a renaming
is no change; what is shown is what the files hold.
"""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

#: Unchanged lines around a change.
CONTEXT = 2
#: So many lines must agree, none of them empty, to call code moved.
MOVED_LINES = 4

Kind = Literal["same", "changed", "moved"]
#: Version, file and number of a line.
Place = tuple[str, str, int]


@dataclass(frozen=True)
class Line:
    """A line of a file.

    Attributes:
        side: Version that has it.
        file: The file.
        number: From 1.
        text: As the file has it.
        named: With the names of the later version.
    """

    side: str
    file: str
    number: int
    text: str
    named: str

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.side, self.file, self.number


@dataclass(frozen=True)
class Row:
    """A row of the comparison; a side that has no line there is None."""

    kind: Kind
    old: Line | None
    new: Line | None


def lines_of(
    side: str, shown: Mapping[str, str], named: Mapping[str, str]
) -> dict[str, list[Line]]:
    """Lines of each file, by its path in the later version.

    Args:
        side: The version.
        shown: Text of each file.
        named: The same with the names of the later version, under the later version's paths.
    """
    return {
        path: [
            Line(side, file, number, text, other)
            for number, (text, other) in enumerate(
                zip(text.splitlines(), named[path].splitlines(), strict=True), 1
            )
        ]
        for (file, text), path in zip(shown.items(), named, strict=True)
    }


def rows(old: list[Line], new: list[Line], moved: Mapping[Place, Line]) -> list[Row]:
    """Two files side by side, whole.

    Args:
        old: The earlier file; none when it is new.
        new: The later file; none when it is gone.
        moved: Where the line of a place went or came from; see ``moves``.
    """
    found: list[Row] = []
    for tag, a, b, c, d in _matcher(old, new).get_opcodes():
        if tag == "equal":
            pairs = zip(old[a:b], new[c:d], strict=True)
            found += [Row("same", before, after) for before, after in pairs]
            continue
        found += _paired(old[a:b], new[c:d], moved)
    return found


def _paired(left: list[Line], right: list[Line], moved: Mapping[Place, Line]) -> Iterator[Row]:
    """Rows of a change: lines that moved alone, the others side by side."""
    olds, news = deque(left), deque(right)
    while olds or news:
        if olds and olds[0].place in moved:
            yield Row("moved", olds.popleft(), None)
        elif news and news[0].place in moved:
            yield Row("moved", None, news.popleft())
        else:
            old = olds.popleft() if olds else None
            yield Row("changed", old, news.popleft() if news else None)


def moves(
    pairs: Iterable[tuple[list[Line], list[Line]]],
) -> dict[Place, Line]:
    """Lines that went from one place to another, each with the line at the other place."""
    gone: list[Line] = []
    come: list[Line] = []
    for old, new in pairs:
        for tag, a, b, c, d in _matcher(old, new).get_opcodes():
            if tag != "equal":
                gone += [line for line in old[a:b] if line.named.strip()]
                come += [line for line in new[c:d] if line.named.strip()]
    found: dict[Place, Line] = {}
    matcher = SequenceMatcher(
        None, [x.named.strip() for x in gone], [x.named.strip() for x in come], autojunk=False
    )
    for block in matcher.get_matching_blocks():
        if block.size >= MOVED_LINES:
            for before, after in zip(
                gone[block.a : block.a + block.size], come[block.b :], strict=False
            ):
                found[before.place] = after
                found[after.place] = before
    return found


def _matcher(old: list[Line], new: list[Line]) -> SequenceMatcher[str]:
    return SequenceMatcher(
        None, [line.named for line in old], [line.named for line in new], autojunk=False
    )


# -- as HTML ---------------------------------------------------------------------------------------


def table(old: Mapping[str, list[Line]], new: Mapping[str, list[Line]], first: str) -> str:
    """All files that differ, side by side; empty when none does.

    Args:
        old: Lines of the earlier version's files by their path in the later one.
        new: Lines of the later version's files.
        first: The file to show first.
    """
    paths = sorted(old.keys() | new.keys(), key=lambda path: (path != first, path))
    pairs = {path: (old.get(path, []), new.get(path, [])) for path in paths}
    moved = moves(pairs.values())
    parts = []
    for before, after in pairs.values():
        whole = rows(before, after, moved)
        if any(row.kind != "same" for row in whole):
            parts.append(_file(before, after, whole, moved))
    return "\n\n".join(parts)


def _file(
    before: list[Line], after: list[Line], whole: list[Row], moved: Mapping[Place, Line]
) -> str:
    shown = "".join(_hunk(hunk, moved) for hunk in _hunks(whole))
    head = "".join(
        f'<th scope="col" colspan="2">{html.escape(_name(lines) or missing)}</th>'
        for lines, missing in ((before, "not there yet"), (after, "gone"))
    )
    return (
        '<div class="diff" tabindex="0" role="region" aria-label="Changes, side by side">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{shown}</tbody></table></div>"
    )


def _name(lines: list[Line]) -> str:
    return f"{lines[0].side} {lines[0].file}" if lines else ""


def _hunks(whole: Sequence[Row]) -> Iterator[list[Row]]:
    """Changes with the lines around them."""
    near = [
        any(row.kind != "same" for row in whole[max(0, i - CONTEXT) : i + CONTEXT + 1])
        for i in range(len(whole))
    ]
    hunk: list[Row] = []
    for row, kept in zip(whole, near, strict=True):
        if kept:
            hunk.append(row)
        elif hunk:
            yield hunk
            hunk = []
    if hunk:
        yield hunk


def _hunk(hunk: list[Row], moved: Mapping[Place, Line]) -> str:
    """Rows of a hunk, code that moved folded into one row each."""
    parts, at = ['<tr class="diff__gap"><td colspan="4"></td></tr>'], 0
    while at < len(hunk):
        end = at
        while end < len(hunk) and hunk[end].kind == "moved":
            end += 1
        if end > at:
            parts.append(_moved(hunk[at:end], moved))
            at = end
        else:
            parts.append(_row(hunk[at]))
            at += 1
    return "".join(parts)


def _moved(rows: list[Row], moved: Mapping[Place, Line]) -> str:
    """One row for code that stands elsewhere in the other version."""
    cells = []
    for lines, verb in (([r.old for r in rows], "to"), ([r.new for r in rows], "from")):
        there = [line for line in lines if line is not None]
        if not there:
            cells.append("<td></td><td></td>")
            continue
        others = [moved[line.place] for line in there]
        renamed = sum(moved[line.place].text.strip() != line.text.strip() for line in there)
        said = f"{len(there)} lines moved {verb} {others[0].file}, line {others[0].number}" + (
            f"; {renamed} of them with other names" if renamed else ""
        )
        cells.append(f"<td>{there[0].number}</td><td>{html.escape(said)}</td>")
    return f'<tr class="diff__moved">{"".join(cells)}</tr>'


def _row(row: Row) -> str:
    old, new = row.old, row.new
    renamed = bool(old and new and row.kind == "same" and old.text != new.text)
    marks = "renamed" if renamed else row.kind
    return f'<tr class="diff__{marks}">{_cell(old, row, "-")}{_cell(new, row, "+")}</tr>'


def _cell(line: Line | None, row: Row, sign: str) -> str:
    if line is None:
        return "<td></td><td></td>"
    changed = row.kind == "changed"
    mark = (
        f'<span aria-label="{"removed" if sign == "-" else "added"}">{sign}</span> '
        if changed
        else ""
    )
    kind = (" class=diff__old" if sign == "-" else " class=diff__new") if changed else ""
    text = re.sub(r"^ +", lambda found: "&nbsp;" * len(found[0]), html.escape(line.text))
    return f"<td>{line.number}</td><td{kind}><code>{mark}{text}</code></td>"
