"""Schema and reader of a reference: its chapters, entries, and names of the installed package."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from mla_var3 import inputs
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.references import cells, used
from mla_var3.paths import relative

FOLDER = "knowledge/references"
HEAD, INSTALLED = "reference.toml", "installed.json"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Head(_Model):
    """``reference.toml``.

    Attributes:
        title: Name of the DSL.
        package: The distribution that is installed.
        language: Key of the language whose module ``api`` reads the package.
        lead: What the reference holds, in a sentence.
        first: What its index says before that, as Markdown.
        found_by: Other words for what that says.
        complete: Whether every public name has to be described, or those that examples use.
        aliases: Modules by the first part of the names.
        checks: Findings of the interpreter, by operation of the typed IR.
    """

    title: str
    package: str
    language: str
    lead: str
    first: str = ""
    found_by: tuple[str, ...] = ()
    complete: bool
    aliases: Mapping[str, str]
    checks: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)


class Detail(_Model):
    """What a caller asks of a name, each answer in our words as Markdown.

    Attributes:
        args: What each argument is and what it is when left out, by name of the parameter; those
            that only say themselves are not among them.
        gives: What comes back: shape, dtype, and in which order where there are several.
        left_out: What happens without the call: whether the result changes, or time alone.
        instead: The name that takes the place of one that is deprecated.
    """

    args: Mapping[str, str] = Field(default_factory=dict)
    gives: str = ""
    left_out: str = ""
    instead: str = ""


class Chapter(_Model):
    """A chapter's file.

    Attributes:
        title: Its heading.
        order: Its place.
        intro: What to know before the first name.
        worked: Examples with their results, where a chapter has them.
        figures: Pictures, by name of the function that draws them.
        cells: Files of snippets.
        found_by: Other words for what it holds.
        on_top: Names of which the intro tells what is asked for most: the search leads to it.
        names: What each name means, in our words; below the reference's first alias where it does
            not begin with one.
        notes: What else to know of a name, as Markdown.
        details: Arguments, result, what if left out and successor of a name.
        compiled: Lists of ``knowledge/compiles`` that show what a name becomes, by name.
        sought: What readers say who look for a name, by name.
    """

    title: str
    order: int
    intro: str
    worked: str = ""
    figures: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    found_by: tuple[str, ...] = ()
    on_top: tuple[str, ...] = ()
    names: Mapping[str, str]
    notes: Mapping[str, str] = Field(default_factory=dict)
    details: Mapping[str, Detail] = Field(default_factory=dict)
    compiled: Mapping[str, str] = Field(default_factory=dict)
    sought: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)


class Name(_Model):
    """What the package says of a name; see ``languages.public_names``.

    Attributes:
        kind: ``function``, ``class``, ``enum`` or ``value``.
        signature: Its parameters.
        members: Members, or methods with their parameters.
        choices: What a parameter takes: values, or the enum whose members it takes.
        dtypes: The dtypes that an operation takes.
        lowers: What an operation becomes.
        examples: How many of CUTLASS's examples use it.
    """

    kind: str
    signature: str = ""
    members: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    lowers: tuple[str, ...] = ()
    examples: int = 0


class Installed(_Model):
    """``installed.json``.

    Attributes:
        package: The distribution.
        version: Its version.
        names: Public names that are described, or have to be.
        others: Public names that no example uses.
        missing: Names that examples use and the package does not have.
    """

    package: str
    version: str
    names: Mapping[str, Name]
    others: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


_M = TypeVar("_M", bound=_Model)


@dataclass(frozen=True)
class Entry:
    """A name of a reference.

    Attributes:
        key: As users write it: ``ct.load``.
        says: Our words.
        note: What else there is to say.
        detail: Its arguments, result, what if left out, successor.
        compiled: List of compiles that shows what it becomes; empty where none does.
        sought: What readers say who look for it.
        on_top: Whether its chapter's intro tells of it.
        name: What the package says.
        cell: A snippet that uses it.
        file: File of our words, from the top of the checkout.
        line: Their line.
    """

    key: str
    says: str
    note: str
    detail: Detail
    compiled: str
    sought: tuple[str, ...]
    on_top: bool
    name: Name
    cell: cells.Cell | None
    file: str
    line: int


@dataclass(frozen=True)
class Part:
    """A chapter with its entries.

    Attributes:
        key: Name of its file.
        file: The file, from the top of the checkout.
        chapter: The chapter.
        entries: Its names, in order.
        cells: Its snippets, in order.
    """

    key: str
    file: str
    chapter: Chapter
    entries: tuple[Entry, ...]
    cells: tuple[cells.Cell, ...]


@dataclass(frozen=True)
class Reference:
    """A reference.

    Attributes:
        key: Name of its folder.
        head: What it is of.
        parts: Its chapters, in order.
        installed: What the package says.
    """

    key: str
    head: Head
    parts: tuple[Part, ...]
    installed: Installed

    def entries(self) -> Iterator[Entry]:
        """All names."""
        for part in self.parts:
            yield from part.entries


def load_all(root: Path) -> list[Reference]:
    """The references of a checkout, by key.

    Raises:
        KnowledgeError: A file is not sound.
    """
    folders = sorted(path.parent for path in (root / FOLDER).glob(f"*/{HEAD}"))
    return [load(folder, root) for folder in folders]


def load(folder: Path, root: Path) -> Reference:
    """The reference of a folder.

    Raises:
        KnowledgeError: A file is missing or not sound.
    """
    head = _read(folder / HEAD, Head, root)
    installed = read_installed(folder, root)
    parts = (
        _part(path, head, installed, root) for path in folder.glob("*.toml") if path.name != HEAD
    )
    ordered = sorted(parts, key=lambda part: part.chapter.order)
    return Reference(folder.name, head, tuple(ordered), installed)


def read_installed(folder: Path, root: Path) -> Installed:
    """What was written of the package; nothing before the first time.

    Raises:
        KnowledgeError: The file is not sound.
    """
    path = folder / INSTALLED
    if not path.exists():
        return Installed(package="", version="", names={})
    with inputs.faults_as(KnowledgeError, relative(path, root)):
        return Installed.model_validate(inputs.read_json(path))


def full(key: str, head: Head) -> str:
    """A name with the first alias, where it begins with none."""
    first = key.partition(".")[0]
    return key if first in head.aliases else f"{next(iter(head.aliases))}.{key}"


def _part(path: Path, head: Head, installed: Installed, root: Path) -> Part:
    chapter = _read(path, Chapter, root)
    name = relative(path, root)
    lines = _lines(path)
    found = tuple(cell for file in chapter.cells for cell in cells.read(root / file, root))
    by_name = {key: cell for cell in reversed(found) for key in _shown(cell, head)}
    keys = {key: full(key, head) for key in chapter.names}
    entries = tuple(
        Entry(
            full_key,
            chapter.names[key],
            chapter.notes.get(key, ""),
            chapter.details.get(key, Detail()),
            chapter.compiled.get(key, ""),
            chapter.sought.get(key, ()),
            key in chapter.on_top,
            installed.names.get(full_key, Name(kind="")),
            by_name.get(key, by_name.get(full_key)),
            name,
            lines.get(key, 1),
        )
        for key, full_key in keys.items()
    )
    told = {*chapter.notes, *chapter.details, *chapter.compiled, *chapter.sought}
    told |= {*chapter.on_top}
    if unknown := told - chapter.names.keys():
        raise KnowledgeError(f"{name} tells of {', '.join(sorted(unknown))}, not among names")
    return Part(path.stem, name, chapter, entries, found)


def _shown(cell: cells.Cell, head: Head) -> Iterable[str]:
    """The names that a cell shows: those of its heading, or all that a whole script uses."""
    if not cell.whole:
        return cell.names
    top = next(iter(head.aliases.values())).partition(".")[0]
    used_names = used.of_tree(ast.parse(cell.code), top)
    return [key for name in used_names for key in used.spelled(name, head.aliases)]


def _lines(path: Path) -> dict[str, int]:
    """Line of each name."""
    text = path.read_text(encoding="utf-8").partition("\n[names]\n")
    first = text[0].count("\n") + 3
    found: dict[str, int] = {}
    for number, line in enumerate(text[2].splitlines(), first):
        key, equals, _ = line.partition('" = "')
        if equals and key.startswith('"'):
            found.setdefault(key[1:], number)
    return found


def _read(path: Path, kind: type[_M], root: Path) -> _M:
    with inputs.faults_as(KnowledgeError, relative(path, root)):
        return kind.model_validate(inputs.read_toml(path))


def dump(installed: Installed) -> str:
    """``installed.json``: a line per name, so that an update reads as a diff."""
    told = installed.model_dump(exclude_defaults=True)
    names = told.pop("names", {})
    rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(names[key])}" for key in sorted(names))
    rest = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in told.items())
    return f'{{\n{rest} "names": {{\n{rows}\n }}\n}}\n'
