"""Lint checks of pattern pages' and devlogs' sections: which, in what order, none empty."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from mla_var3.knowledge.checks.base import Check, DocumentCheck, Finding, Problem
from mla_var3.knowledge.markdown import directives
from mla_var3.knowledge.pages import ENTRY, Catalogue, Document, Section
from mla_var3.knowledge.schema import DEVLOG_SECTIONS, SECTIONS
from mla_var3.versions import number_of


def _chapters(document: Document) -> list[Section]:
    return [section for section in document.sections if section.level == 2]


def _shown(title: str) -> str:
    """A heading that is quoted in a message, cut where it is long."""
    return repr(title if len(title) <= 60 else title[:57] + "...")


class SectionMissing(DocumentCheck):
    """A pattern page has all eight sections."""

    id = "section-missing"
    roles = ("pattern",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        titles = {section.title for section in _chapters(document)}
        for title in SECTIONS:
            if document.body and title not in titles:
                yield document.first_line, f"section {title!r} is missing"


class SectionUnknown(DocumentCheck):
    """A pattern page has no `##` section but the eight; finer headings start with `###`."""

    id = "section-unknown"
    roles = ("pattern",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for section in _chapters(document):
            if section.title not in SECTIONS:
                yield section.line, f"section {_shown(section.title)} is not one of the eight"


class SectionTwice(DocumentCheck):
    """A pattern page has no section twice."""

    id = "section-twice"
    roles = ("pattern",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        seen: set[str] = set()
        for section in _chapters(document):
            if section.title in seen:
                yield section.line, f"section {_shown(section.title)} stands here a second time"
            seen.add(section.title)


class SectionOrder(DocumentCheck):
    """The sections of a pattern page stand in the fixed order."""

    id = "section-order"
    roles = ("pattern",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        yield from _order(_chapters(document), SECTIONS)


def _order(sections: Sequence[Section], wanted: Sequence[str]) -> Iterator[Problem]:
    known = [section for section in sections if section.title in wanted]
    for before, after in itertools.pairwise(known):
        if wanted.index(after.title) < wanted.index(before.title):
            yield after.line, f"section {after.title!r} belongs before {before.title!r}"


class SectionEmpty(DocumentCheck):
    """No section of a page or text is empty."""

    id = "section-empty"
    roles = ("pattern", "text")

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for section in document.sections:
            if not section.text.strip():
                yield section.line, f"section {_shown(section.title)} is empty"


class SectionPreamble(DocumentCheck):
    """Nothing stands before the first section of a pattern page; lists show the title alone."""

    id = "section-preamble"
    roles = ("pattern",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        first = document.sections[0].line if document.sections else None
        head = document.body.split("\n")
        if first is not None and "".join(head[: first - document.body_line]).strip():
            yield document.first_line, "text stands before the first section"


class HeadingLevel(DocumentCheck):
    """Headings start at `##` and go down one level at a time; the title is the only `#`."""

    id = "heading-level"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        level = 2 if document.role == "devlog" else 1
        for section in document.sections:
            if section.level == 1:
                yield section.line, "the title of the front matter is the only first-level heading"
            elif section.level > level + 1:
                yield section.line, f"level {section.level} follows level {level}"
            level = section.level


class HeadingTwice(DocumentCheck):
    """No two headings of a page are the same, so that each has its own anchor."""

    id = "heading-twice"
    roles = ("pattern", "text")

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        seen: set[str] = set()
        for section in document.sections:
            if section.title in seen and section.level > 2:
                yield section.line, f"heading {_shown(section.title)} stands here a second time"
            seen.add(section.title)


class DevlogMissing(Check):
    """Every design has a devlog."""

    id = "devlog-missing"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Designs without one."""
        for design in catalogue.designs.values():
            if design.name not in catalogue.devlogs:
                message = f"design {design.name} has no devlog"
                yield self.finding(design.devlog, (1, message))


class DevlogVersionWithoutEntry(DocumentCheck):
    """Every version of a design has an entry in its devlog."""

    id = "devlog-version-without-entry"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        design = catalogue.design_of(document)
        entries = {entry.version for entry in document.entries}
        for version in design.versions if design else ():
            if version not in entries:
                yield document.first_line, f"version {version} has no entry"


class DevlogEntryWithoutVersion(DocumentCheck):
    """Every entry of a devlog is about a version that exists."""

    id = "devlog-entry-without-version"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        design = catalogue.design_of(document)
        for entry in document.entries:
            if design is None or entry.version not in design.versions:
                yield entry.line, f"there is no version {entry.version} of this design"


class DevlogHeading(DocumentCheck):
    """A third-level heading of a devlog is `### vN: verdict`.

    The verdict of a failure starts with `negative:`.
    """

    id = "devlog-heading"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for section in document.sections:
            if section.level == 3 and not ENTRY.fullmatch(section.title):
                yield section.line, f"heading {_shown(section.title)} is not 'vN: verdict'"
            elif section.level == 2:
                yield section.line, "a devlog has no second-level headings"


class DevlogOrder(DocumentCheck):
    """Entries ascend by version, and no version has two."""

    id = "devlog-order"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        entries = document.entries
        for before, after in itertools.pairwise(entries):
            if number_of(after.version) <= number_of(before.version):
                yield after.line, f"entry {after.version} stands behind {before.version}"


class DevlogSectionMissing(DocumentCheck):
    """An entry has all seven sections."""

    id = "devlog-section-missing"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for entry in document.entries:
            titles = {section.title for section in entry.sections}
            for title in DEVLOG_SECTIONS:
                if title not in titles:
                    yield entry.line, f"entry {entry.version} has no section {title!r}"


class DevlogSectionUnknown(DocumentCheck):
    """An entry has no fourth-level section but the seven, none of them twice."""

    id = "devlog-section-unknown"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for entry in document.entries:
            seen: set[str] = set()
            for section in entry.sections:
                if section.title not in DEVLOG_SECTIONS or section.title in seen:
                    message = f"section {_shown(section.title)} does not belong in an entry"
                    yield section.line, message
                seen.add(section.title)


class DevlogSectionOrder(DocumentCheck):
    """The sections of an entry stand in the fixed order."""

    id = "devlog-section-order"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for entry in document.entries:
            yield from _order(entry.sections, DEVLOG_SECTIONS)


class DevlogSectionEmpty(DocumentCheck):
    """No section of an entry is empty; what is not known is said."""

    id = "devlog-section-empty"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for entry in document.entries:
            for section in entry.sections:
                if not section.text.strip():
                    yield section.line, f"section {_shown(section.title)} is empty"


class DevlogNotRendered(DocumentCheck):
    """The section Measured of an entry shows its records by the directive `{{ measured }}`."""

    id = "devlog-not-rendered"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for entry in document.entries:
            for section in entry.sections:
                names = {item.name for item in directives(section.text)}
                if section.title == "Measured" and "measured" not in names:
                    yield section.line, f"Measured of {entry.version} lacks {{{{ measured }}}}"


class EvidenceNotRendered(DocumentCheck):
    """Evidence of the front matter is shown by the directive `{{ evidence }}`.

    A pattern page shows it in "Performance evidence", another text anywhere.
    """

    id = "evidence-not-rendered"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        assert document.meta is not None
        pattern = document.role == "pattern"
        text = document.section("Performance evidence") if pattern else document.prose
        shown = any(item.name == "evidence" for item in directives(text))
        if (pattern or document.meta.evidence) and not shown:
            heading = re.search(r"^## Performance evidence$", document.body, re.MULTILINE)
            line = document.line_at(heading.start()) if heading else document.first_line
            yield line, "the evidence is not shown: {{ evidence }} is missing"
