"""Lint checks of knowledge files and their front matter: place, name, encoding, keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from mla_var3.knowledge.checks.base import (
    Check,
    DocumentCheck,
    FaultCheck,
    Finding,
    Problem,
    entries,
)
from mla_var3.knowledge.markdown import NUMBER_WITH_UNIT
from mla_var3.knowledge.pages import Catalogue, Document
from mla_var3.knowledge.schema import FOLDERS, SHARED, RecordedEvidence
from mla_var3.workloads import workloads


class FileReadable(FaultCheck):
    """A knowledge file can be read."""

    id = "file-readable"


class FileSize(FaultCheck):
    """A knowledge file is at most 256 KiB long; larger ones are split."""

    id = "file-size"


class FileEncoding(FaultCheck):
    """A knowledge file is UTF-8 without control characters or marks that reverse text."""

    id = "file-encoding"


class FileLocation(FaultCheck):
    """A Markdown file below knowledge/ lies where its kind belongs, and is not a link out.

    Pattern pages lie in `optimizations/` and `anti-patterns/`, directly below `knowledge/` or below
    `knowledge/languages/<language>/`, as the front matter's `kind` and `scope` say. The cost
    analysis of a workload is `knowledge/workloads/<workload>.md`, and what it rests on
    `<workload>-<part>.md` beside it; other texts lie directly in `knowledge/`.
    """

    id = "file-location"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Links out of the tree, files in no known place, and pages in the wrong one."""
        yield from super().run(catalogue)
        for document in catalogue.documents:
            if document.role == "misplaced":
                message = "no kind of knowledge file belongs here"
                yield self.finding(document.name, (1, message))
            folder, _, file = document.name.rpartition("/")
            workload = document.path.stem.partition("-")[0]
            if folder == "knowledge/workloads" and workload not in workloads():
                message = f"{file} is not named by a workload ({', '.join(workloads())})"
                yield self.finding(document.name, (1, message))
        for page in catalogue.patterns:
            meta = page.pattern
            shared = meta.scope == SHARED
            folder = (
                FOLDERS[meta.kind] if shared else f"languages/{meta.scope}/{FOLDERS[meta.kind]}"
            )
            wanted = f"knowledge/{folder}"
            if page.name.rpartition("/")[0] != wanted:
                message = f"kind {meta.kind!r} of scope {meta.scope!r} belongs in {wanted}/"
                yield self.finding(page.name, (page.line_of("kind"), message))


class FileName(DocumentCheck):
    """A pattern page is named by its id, as `<id>.md`."""

    id = "file-name"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        if document.path.stem != document.pattern.id:
            message = f"id {document.pattern.id!r} does not match the file name"
            yield document.line_of("id"), message


class FrontMatterMissing(FaultCheck):
    """A knowledge file starts with front matter between two `---` lines."""

    id = "front-matter-missing"


class FrontMatterYaml(FaultCheck):
    """Front matter is a YAML mapping without aliases."""

    id = "front-matter-yaml"


class FrontMatterDuplicateKey(FaultCheck):
    """No key of the front matter is given twice; YAML would keep the last one in silence."""

    id = "front-matter-duplicate-key"


class FrontMatterUnknownKey(FaultCheck):
    """Front matter has only keys of the schema."""

    id = "front-matter-unknown-key"


class FrontMatterMissingKey(FaultCheck):
    """Front matter has every key that the schema requires."""

    id = "front-matter-missing-key"


class FrontMatterValue(FaultCheck):
    """Every value of the front matter has the type, form or choice that the schema demands."""

    id = "front-matter-value"


class FrontMatterNumber(DocumentCheck):
    """Titles and notes of the front matter hold no number with a unit; evidence carries those."""

    id = "front-matter-number"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        assert document.meta is not None
        notes = [(line, e.note) for line, e in entries(document, RecordedEvidence, "note")]
        for line, text in [(document.line_of("title"), document.meta.title), *notes]:
            for match in NUMBER_WITH_UNIT.finditer(text or ""):
                yield line, f"{match.group()!r} is a figure without a source"


class DuplicateId(Check):
    """No two pages have the same id."""

    id = "duplicate-id"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Pages whose id another page has already."""
        for page in catalogue.patterns:
            first = catalogue.by_id[page.pattern.id]
            if first is not page:
                message = f"id {page.pattern.id!r} is taken by {first.name}"
                yield self.finding(page.name, (page.line_of("id"), message))


class DuplicateTitle(Check):
    """No two pages have the same title, so that lists and search results can be told apart."""

    id = "duplicate-title"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Pages whose title another page has already."""
        seen: dict[str, Document] = {}
        for page in catalogue.patterns:
            title = page.pattern.title.casefold()
            first = seen.setdefault(title, page)
            if first is not page:
                message = f"title {page.pattern.title!r} is taken by {first.name}"
                yield self.finding(page.name, (page.line_of("title"), message))
