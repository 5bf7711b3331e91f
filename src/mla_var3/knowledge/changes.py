"""Compares the sources of two kernel versions: hunks of every file, and code that only moved.

A version that is composed from the kit is compared as one file, with what it takes from there.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

from mla_var3.paths import relative
from mla_var3.runtime.flattening import flatten_file, is_composed

#: Unchanged lines around a change.
CONTEXT = 2
#: So many lines must agree, none of them empty, to call code moved.
MOVED_LINES = 4

Kind = Literal["same", "changed", "moved"]
#: Version, file and number of a line.
Place = tuple[str, str, int]
#: Path and text of each file of a version.
Sources = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Line:
    """A line of a file.

    Attributes:
        side: Version that has it.
        file: The file, below the version's folder; of a composed version its module, flattened.
        number: From 1.
        text: As the file has it.
    """

    side: str
    file: str
    number: int
    text: str

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

    @property
    def lines(self) -> tuple[Line, ...]:
        """Its lines, the later version's first."""
        return tuple(line for line in (self.new, self.old) if line is not None)


@dataclass(frozen=True)
class Hunk:
    """Changes with the unchanged lines around them."""

    rows: tuple[Row, ...]

    def lines(self, *kinds: Kind) -> Iterator[Line]:
        """The lines of the rows of these kinds."""
        return (line for row in self.rows if row.kind in kinds for line in row.lines)


@dataclass(frozen=True)
class FileChange:
    """A file that differs.

    Attributes:
        path: What the later version calls it.
        before: What the earlier version calls it; None where it is new.
        after: ``path``; None where it is gone.
        hunks: What differs, in order.
    """

    path: str
    before: str | None
    after: str | None
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True)
class Comparison:
    """Two versions of a design.

    Attributes:
        before: The earlier version.
        after: The later one.
        files: The files that differ, that of the version's module first.
        moved: Lines that went from one place to another, each with the line at the other place.
    """

    before: str
    after: str
    files: tuple[FileChange, ...]
    moved: Mapping[Place, Line]

    @property
    def hunks(self) -> list[Hunk]:
        """All changes, in the order in which they are shown."""
        return [hunk for file in self.files for hunk in file.hunks]


def folder_of(design: Path, version: str) -> Path:
    """The package of a version, given the folder of its design."""
    return design / (design.name if version == "v0" else f"{design.name}_{version}")


def compare(design: Path, before: str, after: str) -> Comparison:
    """What changed between two versions of a design.

    Args:
        design: The design's folder: ``<kernels>/<language package>/<layer>/<design>``.
        before: The earlier version.
        after: The later version.
    """
    return _compared(design, before, after, *(_sources(design, v) for v in (before, after)))


# Whoever reads a version's changes asks several times, and most files have not changed since.
@functools.cache
def _compared(design: Path, before: str, after: str, one: Sources, other: Sources) -> Comparison:
    first = _module(design, after)
    old, new = _lines(before, one), _lines(after, other)
    if _module(design, before) in old:  # what both are about, whatever the file is called
        old[first] = old.pop(_module(design, before))
    paths = sorted(old.keys() | new.keys(), key=lambda path: (path != first, path))
    pairs = {path: _Pair(old.get(path, []), new.get(path, [])) for path in paths}
    moved = moves(pairs.values())
    files = []
    for path, pair in pairs.items():
        if hunks := tuple(_hunks(list(pair.rows(moved)))):
            before_name, after_name = (x[0].file if x else None for x in (pair.old, pair.new))
            files.append(FileChange(path, before_name, after_name, hunks))
    return Comparison(before, after, tuple(files), moved)


def _sources(design: Path, version: str) -> Sources:
    folder, module = folder_of(design, version), _module(design, version)
    if (folder / module).is_file() and is_composed(folder / module):
        return ((module, flatten_file(folder / module)),)
    own = {relative(path, folder): path for path in sorted(folder.rglob("*.py"))}
    return tuple((name, path.read_text(encoding="utf-8")) for name, path in own.items())


def _module(design: Path, version: str) -> str:
    """The file of a version's module, below its package."""
    return f"{folder_of(design, version).name}.py"


def _lines(side: str, sources: Sources) -> dict[str, list[Line]]:
    return {
        file: [Line(side, file, i, line) for i, line in enumerate(text.splitlines(), 1)]
        for file, text in sources
    }


# -- rows of two files -----------------------------------------------------------------------------


class _Pair:
    """A file in both versions, and where they differ."""

    def __init__(self, old: list[Line], new: list[Line]) -> None:
        self.old, self.new = old, new
        texts = [line.text for line in old], [line.text for line in new]
        self.opcodes = SequenceMatcher(None, *texts, autojunk=False).get_opcodes()

    def changed(self) -> Iterator[tuple[list[Line], list[Line]]]:
        """The lines of each change."""
        for tag, a, b, c, d in self.opcodes:
            if tag != "equal":
                yield self.old[a:b], self.new[c:d]

    def rows(self, moved: Mapping[Place, Line]) -> Iterator[Row]:
        """All rows, old and new side by side."""
        for tag, a, b, c, d in self.opcodes:
            if tag == "equal":
                for old, new in zip(self.old[a:b], self.new[c:d], strict=True):
                    yield Row("same", old, new)
            else:
                yield from _side_by_side(self.old[a:b], self.new[c:d], moved)


def _side_by_side(
    left: list[Line], right: list[Line], moved: Mapping[Place, Line]
) -> Iterator[Row]:
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


def moves(pairs: Iterable[_Pair]) -> dict[Place, Line]:
    """Lines that went from one place to another, each with the line at the other place."""
    gone: list[Line] = []
    come: list[Line] = []
    for pair in pairs:
        for old, new in pair.changed():
            gone += [line for line in old if line.text.strip()]
            come += [line for line in new if line.text.strip()]
    stripped = [line.text.strip() for line in gone], [line.text.strip() for line in come]
    found: dict[Place, Line] = {}
    for block in SequenceMatcher(None, *stripped, autojunk=False).get_matching_blocks():
        if block.size >= MOVED_LINES:
            for before, after in zip(
                gone[block.a : block.a + block.size], come[block.b :], strict=False
            ):
                found[before.place] = after
                found[after.place] = before
    return found


def _hunks(whole: Sequence[Row]) -> Iterator[Hunk]:
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
            yield Hunk(tuple(hunk))
            hunk = []
    if hunk:
        yield Hunk(tuple(hunk))


# -- code that words point at ----------------------------------------------------------------------

#: A line that names without saying: a comment, an import, or one of a list of names.
_LISTED = re.compile(r"\s*#.*|\s*(?:from|import) .*|[\s\w,]*,\s*")


def place_of(name: str, changes: Comparison) -> Line | None:
    """The changed line that a name is explained at; None where no changed line holds it.

    A function or class of that name comes before a value, that before a use, and that before an
    import; then a line that is there comes before one that is gone, and the first before others.

    Args:
        name: An identifier, dotted or not; whole words count.
        changes: Where to look.
    """
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    found = [
        line
        for hunk in changes.hunks
        for line in hunk.lines("changed", "moved")
        if word.search(line.text)
    ]

    def order(line: Line) -> tuple[int, bool]:
        return _distance(name, line.text), line.side == changes.before

    return min(found, key=order, default=None)


def _distance(name: str, text: str) -> int:
    """How far a line is from defining a name."""
    word = re.escape(name)
    targets = rf"(?:[\w.]+, )*{word}(?:, [\w.]+)*"
    if re.match(rf"\s*(?:def|class) {word}\b", text):
        return 0
    if re.match(rf"\s*(?:{word}:|{targets} = )", text):
        return 1
    return 3 if _LISTED.fullmatch(text) else 2
