"""Renders parts of devlogs for pages: a design's introduction and the entry of each version."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from generators.write import remarks
from generators.write.text import rendered
from mla_var3.knowledge import markdown
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Catalogue, Document, Section
from mla_var3.knowledge.schema import Cited, TextFrontMatter

#: A section that shows the records: the page of a version has them at its top.
_MEASURED = re.compile(r"^#+ Measured\n+\{\{ *measured *\}\}\n*", re.MULTILINE)


def places(devlog: Document, pages: Mapping[str, str]) -> dict[str, str]:
    """Page of each entry's heading.

    Args:
        devlog: A devlog.
        pages: Page of each version.
    """
    return {
        f"{devlog.name}#{markdown.slug(section.title)}": f"{pages[version]}#devlog"
        for version, section in _entries(devlog)
        if version in pages
    }


def _entries(devlog: Document) -> Iterator[tuple[str, Section]]:
    versions = {entry.line: entry.version for entry in devlog.entries}
    for section in devlog.sections:
        if section.line in versions:
            yield versions[section.line], section


#: What stands above the sources of an introduction.
SOURCES = "## Sources"


def introduction(devlog: Document, catalogue: Catalogue, link: Link) -> str:
    """What stands before the first entry, without its own evidence table when nothing is cited."""
    first = next((section.line for _, section in _entries(devlog)), None)
    lines = devlog.body.split("\n")
    head = lines if first is None else lines[: first - devlog.body_line]
    text = "\n".join(line for line in head if line.strip() != "{{ evidence }}")
    return _render(devlog, text, SOURCES, catalogue, link)


def found_by(devlog: Document | None) -> tuple[str, ...]:
    """Other words by which the search finds what a devlog, or another text, tells of."""
    meta = devlog.meta if devlog else None
    return meta.found_by if isinstance(meta, TextFrontMatter) else ()


@dataclass(frozen=True)
class Story:
    """A version's entry, rendered.

    Attributes:
        verdict: What its heading says after the version.
        parts: Text of each section by its title, in order; headings inside are one level up.
    """

    verdict: str
    parts: Mapping[str, str]

    def lead(self, title: str) -> str:
        """The first sentence of a section; empty without one."""
        first = self.parts.get(title, "").strip().split("\n\n")[0].removeprefix("- ")
        plain = re.sub(r'(\]\([^\s)]+) "[^"]*"\)', r"\1)", first.split("\n- ")[0])
        return next(iter(remarks.sentences(plain)), "")


def entry(devlog: Document, version: str, catalogue: Catalogue, link: Link) -> Story | None:
    """A version's entry; None when it has none."""
    for found, section in _entries(devlog):
        if found == version:
            # The directives look the heading up; rendered, it gives the verdict.
            text = f"### {section.title}\n\n{_MEASURED.sub('', section.text)}"
            text = _render(devlog, remarks.anchored(text), "#### Sources", catalogue, link)
            heading, _, body = text.partition("\n")
            verdict = heading.partition(":")[2].strip().removeprefix("negative: ")
            return Story(f"{verdict[:1].upper()}{verdict[1:]}.", dict(_parts(_raised(body))))
    return None


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Title and text below each heading of the third level, outside code."""
    prose = markdown.blank(text, markdown.code_regions(text))
    marks = [*re.finditer(r"^### (.*?)(?: *\{.*\})?$", prose, re.MULTILINE)]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=True):
        yield mark[1].strip(), text[mark.end() : end].strip()


def _render(devlog: Document, text: str, sources: str, catalogue: Catalogue, link: Link) -> str:
    """Part of a devlog as Markdown, followed by the sources that this part cites."""
    keys = {citation.key for citation in markdown.citations(text)}
    meta = devlog.meta
    if keys and meta is not None:
        cited = tuple(
            item for item in meta.evidence if isinstance(item, Cited) and item.key in keys
        )
        meta = meta.model_copy(update={"evidence": cited})
        text = f"{text.rstrip()}\n\n{sources}\n\n{{{{ evidence }}}}\n"
    part = dataclasses.replace(devlog, body=text, meta=meta)
    return rendered(part, catalogue, link)


def _raised(text: str) -> str:
    """Headings of a text one level up, outside code."""
    prose = markdown.blank(text, markdown.code_regions(text))
    for match in reversed(list(re.finditer(r"^#(?=#+ )", prose, re.MULTILINE))):
        text = text[: match.start()] + text[match.end() :]
    return text
