"""Reads knowledge pages and devlogs: front matter, sections and faults, with line numbers.

Reading never raises on a faulty file: what is wrong is kept as faults, which lint reports. Each
fault names the check of ``mla_var3.knowledge.checks`` that it belongs to.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import frontmatter
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pydantic import ValidationError

from mla_var3 import evidence, inputs
from mla_var3.errors import InputError, KnowledgeError, UnknownNameError
from mla_var3.knowledge.markdown import blank, code_regions
from mla_var3.knowledge.schema import FOLDERS, FrontMatter, TextFrontMatter
from mla_var3.paths import relative, repo_root
from mla_var3.runtime import registry

#: A page is read by people, and a devlog of 25 versions is 132 KiB; a larger one is an attack.
MAX_BYTES = 256 * 1024
#: Opening brackets that front matter may hold.
MAX_BRACKETS = 500
#: How deep front matter may nest.
MAX_DEPTH = 100
#: libyaml's reads in a tenth of the time; PyYAML is built without it where a platform has no wheel.
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (
    yaml.BlockMappingStartToken, yaml.BlockSequenceStartToken, yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)  # fmt: skip
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)

Role = Literal["pattern", "text", "devlog", "misplaced"]
Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: check id, line from 1, one sentence."""

    check: str
    line: int
    message: str


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, up to the next heading of its level or above.

    Attributes:
        title: Text of the heading.
        level: 1 to 6.
        line: Line of the heading in the file.
        text: Markdown below the heading, headings of lower levels included.
    """

    title: str
    level: int
    line: int
    text: str


@dataclass(frozen=True)
class Entry:
    """One version's entry in a devlog.

    Attributes:
        version: ``v0``, ``v1``, ...
        verdict: What the heading says after the version.
        negative: Whether the entry is marked as a failure.
        line: Line of the heading.
        sections: The ``####`` sections in file order.
    """

    version: str
    verdict: str
    negative: bool
    line: int
    sections: tuple[Section, ...]

    def section(self, title: str) -> str:
        """Text of a section; empty when it is missing."""
        return next((s.text.strip() for s in self.sections if s.title == title), "")


@dataclass
class Document:
    """A Markdown file with front matter.

    Attributes:
        path: The file.
        name: Its path from the top of the checkout, with ``/``.
        role: What the place of the file makes it.
        text: The whole file, line ends normalized; empty when it cannot be read.
        body: What follows the front matter; a suffix of ``text``.
        data: The front matter as read, before validation.
        meta: The validated front matter; None when it is not valid.
        lines: Line of each front matter entry, by its place.
        faults: What was wrong with reading it.
    """

    path: Path
    name: str
    role: Role
    text: str = ""
    body: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    meta: FrontMatter | TextFrontMatter | None = None
    lines: dict[Location, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    @property
    def body_line(self) -> int:
        """Line of the body's first line."""
        return self.text.count("\n", 0, len(self.text) - len(self.body)) + 1

    @property
    def first_line(self) -> int:
        """Line of the first text of the body."""
        return self.body_line + self.body[: len(self.body) - len(self.body.lstrip())].count("\n")

    def line_at(self, offset: int) -> int:
        """Line of an offset in the body."""
        return self.body_line + self.body.count("\n", 0, offset)

    def line_of(self, *place: str | int) -> int:
        """Line of a front matter entry, or of the nearest one around it."""
        known: Location = ()
        for part in place:
            if (*known, part) in self.lines:
                known = (*known, part)
        return self.lines.get(known, 1)

    @functools.cached_property
    def tokens(self) -> list[Token]:
        """The body as CommonMark tokens; tables included, links of every scheme kept."""
        return parse_markdown(self.body)

    @functools.cached_property
    def prose(self) -> str:
        """The body with code blanked out: same length, same lines."""
        return blank(self.body, code_regions(self.body))

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        """All headings in file order."""
        return tuple(sections_of(self.body, self.body_line, self.tokens))

    def section(self, title: str) -> str:
        """Text of a ``##`` section; empty when it is missing."""
        return next((s.text for s in self.sections if s.level == 2 and s.title == title), "")

    @property
    def pattern(self) -> FrontMatter:
        """Front matter of a pattern page.

        Raises:
            KnowledgeError: The document is not a readable pattern page.
        """
        if not isinstance(self.meta, FrontMatter):
            raise KnowledgeError(f"{self.name} is not a readable pattern page: run knowledge lint")
        return self.meta

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Entries of a devlog: the ``### vN: verdict`` headings."""
        return tuple(_entries(self.sections))


ENTRY = re.compile(r"(v(?:0|[1-9]\d*)): +(negative: +)?(\S.*)")


def _entries(sections: tuple[Section, ...]) -> Iterator[Entry]:
    for index, section in enumerate(sections):
        match = ENTRY.fullmatch(section.title)
        if section.level != 3 or match is None:
            continue
        inner = []
        for below in sections[index + 1 :]:
            if below.level <= 3:
                break
            if below.level == 4:
                inner.append(below)
        version, negative, verdict = match.groups()
        yield Entry(version, verdict, bool(negative), section.line, tuple(inner))


def parse_markdown(text: str) -> list[Token]:
    """CommonMark tokens of ``text``."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    # The parser drops links with a dangerous scheme; other renderers do not, so keep them.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser.parse(text)


def sections_of(body: str, body_line: int, tokens: list[Token]) -> Iterator[Section]:
    """The headings of ``body``, whose first line is line ``body_line`` of the file."""
    rows = body.split("\n")
    heads = [
        (token, inline)
        for token, inline in itertools.pairwise(tokens)
        if token.type == "heading_open" and token.map
    ]
    for index, (token, inline) in enumerate(heads):
        level, (start, stop) = int(token.tag[1]), cast(list[int], token.map)
        end = len(rows)
        for later, _ in heads[index + 1 :]:
            if int(later.tag[1]) <= level:
                end = cast(list[int], later.map)[0]
                break
        yield Section(inline.content, level, body_line + start, "\n".join(rows[stop:end]))


def role_of(name: str) -> Role:
    """What the place of a file makes it."""
    folder = "|".join(FOLDERS.values())
    if re.fullmatch(rf"knowledge/(languages/[^/]+/)?({folder})/[^/]+\.md", name):
        return "pattern"
    if re.fullmatch(r"knowledge/(workloads/)?[^/]+\.md", name):
        return "text"
    if re.fullmatch(r"kernels/[^/]+/[^/]+/[^/]+/devlog\.md", name):
        return "devlog"
    return "misplaced"


def load(path: Path, root: Path) -> Document:
    """Read one file.

    Args:
        path: The file, below ``root``.
        root: Top of the checkout.

    Returns:
        The document, with its faults.
    """
    name = relative(path, root)
    document = Document(path, name, role_of(name))
    try:
        _read(document, root)
        _read_front_matter(document)
    except _StopError as stop:
        document.faults.append(stop.fault)
    return document


# Control characters, byte-order marks and marks that turn the direction of text around.
_ODD = re.compile(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]|[\ufeff\u202a-\u202e\u2066-\u2069]")


class _StopError(Exception):
    """A fault after which nothing further can be read."""

    def __init__(self, check: str, line: int, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(check, line, message)


def _read(document: Document, root: Path) -> None:
    path = document.path
    if not path.resolve().is_relative_to(root.resolve()):
        raise _StopError("file-location", 1, "the file is a link that leads out of the checkout")
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise _StopError("file-size", 1, f"{size} bytes exceed the limit of {MAX_BYTES}")
        data = inputs.read_bytes(path)
    except (OSError, InputError) as error:
        said = error.reason if isinstance(error, InputError) else f"cannot be read: {error}"
        raise _StopError("file-readable", 1, said) from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _StopError(
            "file-encoding", line, f"byte {error.start} is not UTF-8: {error.reason}"
        ) from error
    document.text = document.body = text.replace("\r\n", "\n").replace("\r", "\n")
    if odd := _ODD.search(document.text):
        line = text.count("\n", 0, odd.start()) + 1
        raise _StopError(
            "file-encoding", line, f"control character U+{ord(odd.group()):04X} is not allowed"
        )


def _read_front_matter(document: Document) -> None:
    handler = frontmatter.YAMLHandler()
    text = document.text
    try:
        if not handler.detect(text):
            raise ValueError("no opening line")
        head, body = handler.split(text)
    except ValueError as error:
        raise _StopError(
            "front-matter-missing", 1, "the file does not start with front matter between --- lines"
        ) from error
    document.body = body
    if head.count("[") + head.count("{") > MAX_BRACKETS:
        # The YAML scanner's time grows with the square of open brackets.
        raise _StopError("front-matter-yaml", 1, f"more than {MAX_BRACKETS} opening brackets")
    try:
        _refuse_tokens(head)
        node = yaml.compose(head, _YAML_LOADER)
        data = handler.load(head)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _StopError("front-matter-yaml", line, f"not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _StopError("front-matter-yaml", 1, f"not YAML: {error}") from error
    if not isinstance(data, dict) or not isinstance(node, yaml.MappingNode):
        raise _StopError("front-matter-yaml", 1, "front matter must be a mapping of keys to values")
    document.data = data
    # The head starts behind the --- of line 1, on that line.
    _note_lines(node, (), 1, document)
    model = FrontMatter if document.role == "pattern" else TextFrontMatter
    try:
        document.meta = model.model_validate(data)
    except ValidationError as error:
        document.faults += (_schema_fault(document, row) for row in error.errors())


def _refuse_tokens(head: str) -> None:
    """Stop at aliases, and where libyaml, which composes by recursion, would run out of stack."""
    depth = 0
    for token in yaml.scan(head, _YAML_LOADER):
        if isinstance(token, yaml.AliasToken):
            raise _StopError("front-matter-yaml", 1, "YAML aliases (*name) are not allowed")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > MAX_DEPTH:
            line = token.start_mark.line + 1
            raise _StopError("front-matter-yaml", line, f"nested more than {MAX_DEPTH} deep")


def _note_lines(node: yaml.Node, place: Location, offset: int, document: Document) -> None:
    document.lines.setdefault(place, node.start_mark.line + offset)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner, line = (*place, key.value), key.start_mark.line + offset
            if inner in document.lines:
                document.faults.append(
                    Fault("front-matter-duplicate-key", line, f"key {key.value!r} is given twice")
                )
            document.lines[inner] = line
            _note_lines(value, inner, offset, document)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _note_lines(value, (*place, index), offset, document)


def _schema_fault(document: Document, error: Mapping[str, Any]) -> Fault:
    location = error["loc"]
    if location[:1] == ("evidence",):
        # Behind the index pydantic names the form of evidence, which is not a place in the file.
        location = location[:2] + location[3:]
    line = document.line_of(*location)
    where = ".".join(str(part) for part in location) or "front matter"
    if error["type"] == "extra_forbidden":
        return Fault("front-matter-unknown-key", line, f"unknown key {where!r}")
    if error["type"] == "missing":
        return Fault("front-matter-missing-key", line, f"key {where!r} is missing")
    return Fault("front-matter-value", line, f"{where}: {error['msg']}")


@dataclass(frozen=True)
class Design:
    """A design as the checks and pages see it.

    Attributes:
        name: Its key, as users type it: with ``@<language>`` where another language is preferred.
        language: Language key.
        devlog: Path of its devlog from the top of the checkout.
        versions: Its versions in order.
    """

    name: str
    language: str
    devlog: str
    versions: tuple[str, ...]

    @property
    def names(self) -> tuple[str, str]:
        """What it is called, with and without its language where both tell it."""
        return self.name, f"{self.name.partition('@')[0]}@{self.language}"

    def is_called(self, name: str) -> bool:
        """Whether ``name`` is the design's, with or without its language."""
        return name in self.names


def registered_designs() -> dict[str, Design]:
    """The designs of the registry."""
    found = {}
    for name, versions in registry.designs().items():
        first = versions[0]
        devlog = f"kernels/{first.package}/{first.layer}/{first.design}/devlog.md"
        found[name] = Design(name, first.language, devlog, tuple(v.version for v in versions))
    return found


@dataclass
class Catalogue:
    """Everything under ``knowledge/``, the devlogs, and the records they cite.

    Attributes:
        root: Top of the checkout.
        documents: All documents, by name.
        designs: The designs that there are.
        is_stale: Whether a record was made from other sources than today's.
    """

    root: Path
    documents: list[Document]
    designs: Mapping[str, Design]
    is_stale: Callable[[evidence.Record], bool] = evidence.is_stale

    @functools.cached_property
    def patterns(self) -> list[Document]:
        """Readable pattern pages, by id."""
        found = [d for d in self.documents if isinstance(d.meta, FrontMatter)]
        return sorted(found, key=lambda d: natural(d.pattern.id))

    @functools.cached_property
    def by_id(self) -> dict[str, Document]:
        """Pattern pages by id; of two with the same id the first."""
        found: dict[str, Document] = {}
        for page in self.patterns:
            found.setdefault(page.pattern.id, page)
        return found

    @property
    def texts(self) -> list[Document]:
        """Knowledge texts that are not patterns."""
        return [d for d in self.documents if d.role == "text"]

    @property
    def devlogs(self) -> dict[str, Document]:
        """Devlogs by design."""
        named = {d.name: d for d in self.documents if d.role == "devlog"}
        return {
            design.name: named[design.devlog]
            for design in self.designs.values()
            if design.devlog in named
        }

    def design_of(self, devlog: Document) -> Design | None:
        """The design that a devlog is about."""
        return next((d for d in self.designs.values() if d.devlog == devlog.name), None)

    def version(self, key: str) -> tuple[Design, str] | None:
        """The version that ``<design>[@<language>] vN`` names; None when there is none."""
        return self._by_key.get(key)

    @functools.cached_property
    def _by_key(self) -> dict[str, tuple[Design, str]]:
        return {
            f"{name} {version}": (design, version)
            for design in self.designs.values()
            for name in design.names
            for version in design.versions
        }

    def names(self, keys: Iterable[str], kernel: evidence.KernelIdentity) -> bool:
        """Whether one of the version keys of a page is that of a record's kernel."""
        wanted = f"{kernel.design}@{kernel.language}"
        return any(
            found[0].is_called(wanted) and found[1] == kernel.version
            for key in keys
            if (found := self.version(key)) is not None
        )

    def page(self, id_: str) -> Document:
        """The pattern page with an id.

        Raises:
            UnknownNameError: There is none.
        """
        if id_ not in self.by_id:
            raise UnknownNameError("pattern", id_, list(self.by_id))
        return self.by_id[id_]

    @functools.cached_property
    def index(self) -> evidence.Index:
        """All records, read once."""
        return evidence.Index(self.root / "results")

    def record(self, name: str) -> evidence.Record:
        """The record of an address that a page names: ``results/<…>/<version>/<problem>/<mode>``.

        Raises:
            RecordError: There is no such record.
        """
        return self.index.at(name)

    def pair(self, before: str, after: str) -> tuple[evidence.Record, evidence.Record]:
        """The records of two addresses, of one run where one has both.

        Raises:
            RecordError: There is no such record.
        """
        return self.index.pair(before, after)

    @functools.cached_property
    def records(self) -> dict[str, evidence.Record]:
        """The newest record of each address, numbers in addresses by value."""
        newest = self.index.newest
        return {name: newest[name] for name in sorted(newest, key=natural)}

    @functools.cached_property
    def of_version(self) -> dict[tuple[str, ...], list[evidence.Record]]:
        """The records of each version, the newest of each address and sources."""
        latest: dict[tuple[str, ...], dict[object, evidence.Record]] = {}
        for record in self.index.records:  # Older ones first.
            same = record.key, tuple(sorted(record.kernel.sources.items()))
            known = latest.setdefault(version_of(record.kernel), {})
            if same not in known or record.outcome.status != "skipped":
                known[same] = record
        return {version: list(found.values()) for version, found in latest.items()}

    def record_files(self) -> list[Path]:
        """All files under ``results/`` that should hold records."""
        return evidence.files(self.root / "results")


def version_of(kernel: evidence.KernelIdentity) -> tuple[str, ...]:
    """What names a version, whatever its sources."""
    return kernel.package, kernel.layer, kernel.design, kernel.version


def natural(text: str) -> tuple[str | int, ...]:
    """Sort key that puts o2 before o10; text and numbers take turns, so like compares with like."""
    parts = re.split(r"([0-9]+)", text)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


def load_all(
    root: Path | None = None,
    *,
    designs: Mapping[str, Design] | None = None,
    is_stale: Callable[[evidence.Record], bool] = evidence.is_stale,
) -> Catalogue:
    """Read everything under ``knowledge/`` and the devlogs.

    Args:
        root: Top of the checkout; this one's by default.
        designs: The designs; the registry's by default.
        is_stale: Tells whether a record was made from other sources than today's.

    Raises:
        KnowledgeError: ``root`` has no knowledge folder.
    """
    root = repo_root() if root is None else root
    if not (root / "knowledge").is_dir():
        raise KnowledgeError(f"{root} has no folder knowledge/")
    designs = registered_designs() if designs is None else designs
    paths = sorted((root / "knowledge").glob("**/*.md"))
    paths += [root / d.devlog for d in designs.values() if (root / d.devlog).is_file()]
    return Catalogue(root, [load(path, root) for path in paths], designs, is_stale)
