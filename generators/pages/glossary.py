"""Makes the glossary's index and pages, and the lines by which other pages link their terms.

``explained`` appends these lines to a page's Markdown, for the extension ``term_links``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

from generators.draw import concepts
from generators.model.site import Site
from generators.model.terms import FOLDER, INDEX, Group, Term
from generators.pages import analyses, hopper, lessons, told
from generators.pages.learning_paths import example_source
from generators.pages.machine import heading
from generators.write.page import Page
from generators.write.term_links import Link, Linker, Target
from generators.write.text import cell, meta, rebase, sections, table
from mla_var3 import inputs
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.markdown import neutralise


def places(site: Site) -> Mapping[str, str]:
    """Page of each term's file."""
    found = {term.source: term.page for term in site.terms}
    return found | {FOLDER: INDEX} if found else {}


def pages(site: Site) -> list[Page]:
    """The index, and a page per term; none without terms."""
    if not site.terms:
        return []
    taught = _taught(site)
    return [_index(site), *(_page(site, term, taught) for term in in_order(site.terms))]


def in_order(found: list[Term]) -> list[Term]:
    """By group, then by name."""
    groups = get_args(Group)
    return sorted(found, key=lambda term: groups.index(term.head.group))


def _index(site: Site) -> Page:
    link = site.link(INDEX)
    parts = [
        f"# Glossary\n\nThe {len(site.terms)} terms of this field as this site uses them, each on "
        f"a page of its own.{analyses.symbols(site)}"
    ]
    for group in get_args(Group):
        rows = [
            [f"[{cell(term.head.term)}]({link(term.source)})", cell(term.plain)]
            for term in site.terms
            if term.head.group == group
        ]
        parts += [f"## {group}", table(["Term", "Meaning"], rows)] if rows else []
    return Page(INDEX, sections(*parts), None, ("Learn", "Glossary"))


def _page(site: Site, term: Term, taught: Mapping[str, str]) -> Page:
    link = site.link(term.page)

    def prose(text: str) -> str:
        return told.filled(site, term.source, rebase(neutralise(text), term.source, link), link)

    shown = [f"{term.head.term} example"] if term.head.shortest else []
    parts = {anchor: list(names) for anchor, names in term.head.sections.items()}
    content = sections(
        meta(
            description=term.plain,
            found_by=[*term.names, *term.head.found_by, *shown],
            **({"sections": parts} if parts else {}),
        ),
        f"# {cell(term.head.term)}",
        prose(term.definition),
        _learn(site, term, taught, link),
        _shortest(site, term, link),
        _also(term),
        _figure(site, term.head.figure) if term.head.figure else "",
        prose(term.body),
        _related(site, term, link),
    )
    nav = ("Learn", "Glossary", term.head.group, term.head.term)
    return Page(term.page, content, term.source, nav)


def _taught(site: Site) -> dict[str, str]:
    """The titles of lessons by their script, and under ``#term`` the script that teaches a term."""
    found: dict[str, str] = {}
    if course := lessons.load(site.root):
        for number, lesson in enumerate(course.lessons, 1):
            found[lessons.script(number)] = f"lesson {number}, {lesson.title}"
    if hopper_course := hopper.load(site.root):
        for page in hopper_course.pages:
            found[hopper.script(page)] = page.title
            for slug in page.terms:  # The first page with a term is the one that explains it.
                found.setdefault(f"#{slug}", hopper.script(page))
    return found


def _learn(site: Site, term: Term, taught: Mapping[str, str], link: Link) -> str:
    """Where the term is taught: an entry defines it, and a lesson explains it."""
    own = taught.get(f"#{term.slug}")
    files = [*term.head.learn, *([own] if own else [])]
    shown = [
        f"[{cell(taught.get(file) or _title(site, file))}]({link(file)})"
        for file in dict.fromkeys(files)
    ]
    return f"**Learn it:** {', '.join(shown)}." if shown else ""


def _shortest(site: Site, term: Term, link: Link) -> str:
    """The shortest example that shows the term in code.

    Raises:
        KnowledgeError: There is no such example.
    """
    name = term.head.shortest
    if name is None:
        return ""
    found = site.learning.examples.get(name)
    if found is None:
        raise KnowledgeError(f"{term.source}: no example is called {name!r}")
    goal = cell(found.goal[:1].lower() + found.goal[1:].rstrip("."))
    return (
        f"**Shortest code** of NVIDIA's: [{cell(found.title)}]({link(example_source(name))}), "
        f"{found.length} lines for {found.arch.replace('_', '&#95;')}: {goal}."
    )


def _title(site: Site, file: str) -> str:
    """The first heading of a text."""
    return heading(inputs.read_text(site.root / file.partition("#")[0]))


def _figure(site: Site, name: str) -> str:
    """The picture of a name.

    Raises:
        KnowledgeError: There is no such picture.
    """
    if name in concepts.FIGURES:
        return concepts.FIGURES[name]()
    drawn = analyses.figure(site, name)
    if drawn is None:
        raise KnowledgeError(
            f"no picture is called {name!r}; there are {', '.join(concepts.FIGURES)}"
        )
    return drawn


def _also(term: Term) -> str:
    shown = {name.casefold().rstrip("s"): name for name in term.names}
    shown.pop(term.head.term.casefold(), None)
    return f"Also called: {', '.join(map(cell, shown.values()))}." if shown else ""


def _related(site: Site, term: Term, link: Link) -> str:
    named = {other.slug: other for other in site.terms}
    found = [named[slug] for slug in term.head.related]
    if not found:
        return ""
    rows = (f"- [{cell(o.head.term)}]({link(o.source)}): {cell(o.plain)}" for o in found)
    return "## Related\n\n" + "\n".join(rows)


# -- links on other pages --------------------------------------------------------------------------


def linker(found: Iterable[Term]) -> Linker:
    """What finds the terms that a page uses."""
    return Linker(
        Target(name, term.page, term.plain)
        for term in found
        if term.head.linked
        for name in term.names
    )


def explained(path: str, markdown: str, known: Linker) -> str:
    """A page's text with the lines that ``generators.write.term_links`` reads."""
    lines = "\n".join(known.lines(path, markdown)) if path != INDEX else ""
    return f"{markdown.rstrip()}\n\n{lines}\n" if lines else markdown
