"""Base classes of lint checks, and ``Finding``, which they return.

A check's id is the anchor of its documentation, and its docstring the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from pydantic import BaseModel

from mla_var3.knowledge.pages import Catalogue, Document, Role

Severity = Literal["error", "warning"]
Form = TypeVar("Form", bound=BaseModel)
#: Line and one sentence.
Problem = tuple[int, str]


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that a check found.

    Attributes:
        file: Path from the top of the checkout.
        line: Line from 1.
        check: Id of the check.
        message: One sentence.
        severity: ``error`` or ``warning``.
    """

    file: str
    line: int
    check: str
    message: str
    severity: Severity = "error"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}: {self.message} [{self.check}]"


class Check(ABC):
    """One check; the first line of its docstring says what it demands, the rest why.

    Attributes:
        id: Kebab-case name, the anchor in docs/contributing/checks.md.
        severity: Of its findings.
    """

    id: ClassVar[str]
    severity: ClassVar[Severity] = "error"

    @abstractmethod
    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """All findings in the catalogue."""

    def finding(self, file: str, problem: Problem) -> Finding:
        """A finding of this check."""
        line, message = problem
        return Finding(file, line, self.id, message, self.severity)


class DocumentCheck(Check):
    """A check that looks at one document at a time.

    Attributes:
        roles: Roles of the documents that it looks at.
        needs_meta: Whether it can only look at documents with valid front matter.
    """

    roles: ClassVar[tuple[Role, ...]] = ("pattern", "text", "devlog")
    needs_meta: ClassVar[bool] = False

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """All findings in the documents of the check's roles."""
        for document in catalogue.documents:
            if document.role in self.roles and (document.meta or not self.needs_meta):
                for problem in self._problems(document, catalogue):
                    yield self.finding(document.name, problem)

    @abstractmethod
    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        """What is wrong with one document."""


def entries(
    document: Document, form: type[Form], key: str | None = None
) -> Iterator[tuple[int, Form]]:
    """A document's evidence of one form, each entry with its line, or with that of its ``key``."""
    for index, item in enumerate(document.meta.evidence if document.meta else ()):
        if isinstance(item, form):
            yield document.line_of("evidence", index, key or ""), item


class FaultCheck(Check):
    """A check that reports what reading a file already found."""

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """The faults that carry this check's id."""
        for document in catalogue.documents:
            for fault in document.faults:
                if fault.check == self.id:
                    yield self.finding(document.name, (fault.line, fault.message))
