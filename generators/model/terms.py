"""Reads the glossary's terms from docs/glossary, one file per term.

A file holds a term's names and relations as front matter; its first paragraph defines the term in
one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import frontmatter
from pydantic import BaseModel, ConfigDict, Field

from mla_var3 import inputs
from mla_var3.errors import KnowledgeError

FOLDER, INDEX = "docs/glossary", "glossary/index.md"

Group = Literal[
    "The problem", "The algorithm", "Schedules", "The hardware", "The compiler", "Measuring"
]
Names = tuple[Annotated[str, Field(min_length=1)], ...]


class Head(BaseModel):
    """Front matter of a term.

    Attributes:
        term: The term, as the title of its page.
        group: What kind of term it is.
        aliases: Other names; the first use of one on a page leads here as well.
        found_by: Words by which the search finds it, too common to be links.
        sections: The same of a section of its page, by its anchor.
        related: Files of other terms, without suffix.
        learn: Pages that teach it, as files of the checkout.
        shortest: The shortest of NVIDIA's examples that shows it, as in ``knowledge/examples``.
        linked: Whether pages link to it; not for everyday words.
        figure: A picture of ``glossary_figures``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    term: Annotated[str, Field(min_length=1)]
    group: Group
    aliases: Names = ()
    found_by: Names = ()
    sections: Mapping[str, Names] = Field(default_factory=dict)
    related: Names = ()
    learn: Names = ()
    shortest: str | None = None
    linked: bool = True
    figure: str | None = None


@dataclass(frozen=True)
class Term:
    """A term.

    Attributes:
        slug: Name of its file and of its page.
        head: Its front matter.
        definition: Its first paragraph, one sentence.
        body: What follows.
    """

    slug: str
    head: Head
    definition: str
    body: str

    @property
    def source(self) -> str:
        """File from the top of the checkout."""
        return f"{FOLDER}/{self.slug}.md"

    @property
    def page(self) -> str:
        """Path of the page."""
        return f"glossary/{self.slug}.md"

    @property
    def names(self) -> list[str]:
        """The term, unless parentheses tell it from another one, and its other names."""
        own = [] if "(" in self.head.term else self.head.term.split(", ")
        return list(dict.fromkeys((*own, *self.head.aliases)))

    @property
    def plain(self) -> str:
        """The definition without markup."""
        return plain(self.definition)


def read(path: Path) -> Term:
    """The term of a file.

    Raises:
        KnowledgeError: The file is not a term: front matter, then one defining sentence.
    """
    where = f"{FOLDER}/{path.name}"
    with inputs.faults_as(KnowledgeError, where, "front matter"):
        text = inputs.read_text(path)
        try:
            post = frontmatter.loads(text)
        except Exception as error:  # PyYAML has no single class of errors.
            raise KnowledgeError(f"{where}: the front matter is not YAML") from error
        head = Head.model_validate(post.metadata)
    definition, _, body = post.content.strip().partition("\n\n")
    if not is_sentence(definition):
        raise KnowledgeError(f"{where}: the first paragraph is not one sentence")
    return Term(path.stem, head, definition, body.strip())


def load(root: Path) -> list[Term]:
    """All terms, by name; none without a folder of them.

    Raises:
        KnowledgeError: A file is not sound, names a term that is not there, or a name that
            another term has.
    """
    found = [read(path) for path in sorted((root / FOLDER).glob("*.md"))]
    known = {term.slug for term in found}
    owner: dict[str, str] = {}
    for term in found:
        for other in term.head.related:
            if other not in known:
                raise KnowledgeError(f"{term.source}: related: there is no term {other!r}")
        for name in {name.casefold() for name in term.names}:
            if owner.setdefault(name, term.slug) != term.slug:
                raise KnowledgeError(f"{term.source}: {name!r} is a name of {owner[name]} too")
    return sorted(found, key=lambda term: term.head.term.casefold())


def plain(text: str) -> str:
    """Markdown of a sentence without links and code marks."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
    return re.sub(r"[`*]", "", words).replace('"', "'")


def is_sentence(text: str) -> bool:
    """Whether a paragraph is one sentence of prose."""
    words = plain(text)
    one = words.endswith(".") and not re.search(r"[a-z0-9)]\. +[A-Z]", words)
    return one and words[0] not in "#-|>$" and "$" not in words
