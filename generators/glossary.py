"""The glossary: one page per term, from one file per term, and the links to them on other pages.

A file of ``docs/glossary`` holds a term's names and relations as front matter; its first paragraph
defines the term in one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import frontmatter
from pydantic import BaseModel, ConfigDict, Field

from generators import glossary_figures, terms
from generators.page import Page
from generators.text import cell, meta, rebase, sections, table
from mla_var3 import inputs
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.markdown import neutralise

if TYPE_CHECKING:
    from pathlib import Path

    from generators.site import Site

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
        related: Files of other terms, without suffix.
        linked: Whether pages link to it; not for everyday words.
        figure: A picture of ``glossary_figures``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    term: Annotated[str, Field(min_length=1)]
    group: Group
    aliases: Names = ()
    found_by: Names = ()
    related: Names = ()
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
        return terms.plain(self.definition)


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
    if not terms.is_sentence(definition):
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


def places(site: Site) -> Mapping[str, str]:
    """Page of each term's file."""
    found = {term.source: term.page for term in site.terms}
    return found | {FOLDER: INDEX} if found else {}


def pages(site: Site) -> list[Page]:
    """The index, and a page per term; none without terms."""
    if not site.terms:
        return []
    return [_index(site), *(_page(site, term) for term in in_order(site.terms))]


def in_order(found: list[Term]) -> list[Term]:
    """By group, then by name."""
    groups = get_args(Group)
    return sorted(found, key=lambda term: groups.index(term.head.group))


def _index(site: Site) -> Page:
    link = site.link(INDEX)
    parts = [
        f"# Glossary\n\nThe {len(site.terms)} terms of this field as this site uses them, each on "
        "a page of its own. Sizes: b batch, h query heads, s query tokens per sequence, t context "
        "length, d head dimension, p rotary part, k latent dimension."
    ]
    for group in get_args(Group):
        rows = [
            [f"[{cell(term.head.term)}]({link(term.source)})", cell(term.plain)]
            for term in site.terms
            if term.head.group == group
        ]
        parts += [f"## {group}", table(["Term", "Meaning"], rows)] if rows else []
    return Page(INDEX, sections(*parts), None, ("Learn", "Glossary"))


def _page(site: Site, term: Term) -> Page:
    link = site.link(term.page)

    def prose(text: str) -> str:
        return rebase(neutralise(text), term.source, link)

    content = sections(
        meta(description=term.plain, found_by=[*term.names, *term.head.found_by]),
        f"# {cell(term.head.term)}",
        prose(term.definition),
        _also(term),
        glossary_figures.figure(term.head.figure) if term.head.figure else "",
        prose(term.body),
        _related(site, term, link),
    )
    nav = ("Learn", "Glossary", term.head.group, term.head.term)
    return Page(term.page, content, term.source, nav)


def _also(term: Term) -> str:
    shown = {name.casefold().rstrip("s"): name for name in term.names}
    shown.pop(term.head.term.casefold(), None)
    return f"Also called: {', '.join(map(cell, shown.values()))}." if shown else ""


def _related(site: Site, term: Term, link: terms.Link) -> str:
    named = {other.slug: other for other in site.terms}
    found = [named[slug] for slug in term.head.related]
    if not found:
        return ""
    rows = (f"- [{cell(o.head.term)}]({link(o.source)}): {cell(o.plain)}" for o in found)
    return "## Related\n\n" + "\n".join(rows)


# -- links on other pages --------------------------------------------------------------------------


#: What finds the terms of the build that is going on. A hook is loaded as a module of its own, so
#: what makes the pages leaves it here.
in_use: list[terms.Linker] = []


def linker(site: Site) -> terms.Linker:
    """What finds the terms that a page uses."""
    return terms.Linker(
        terms.Target(name, term.page, term.plain)
        for term in site.terms
        if term.head.linked
        for name in term.names
    )


def explained(path: str, markdown: str, known: terms.Linker) -> str:
    """A page's text that tells the Markdown extension ``generators.terms`` which terms it uses."""
    lines = "\n".join(known.lines(path, markdown)) if path != INDEX else ""
    return f"{markdown.rstrip()}\n\n{lines}\n" if lines else markdown
