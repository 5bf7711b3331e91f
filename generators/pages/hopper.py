"""Makes the pages of the Hopper course: an idea each, with figure, script and seeded mistake."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from generators.draw import hopper
from generators.model.site import Site
from generators.write.page import Page
from generators.write.text import cell, code, fence, meta, rebase, sections
from mla_var3 import inputs
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.markdown import neutralise
from mla_var3.knowledge.references.model import Entry, load_all

FOLDER = "examples/hopper"
SOURCE = f"{FOLDER}/hopper.toml"
INDEX = "learn/hopper/index.md"
TITLE = "Hopper from nothing"

Words = Annotated[str, Field(min_length=1)]


class Lesson(BaseModel):
    """A page; its script lies beside the file.

    Attributes:
        key: Name of script and page.
        title: Its heading.
        figure: Its picture.
        question: What it answers.
        text: The idea.
        then: What to see in the script.
        marked: Texts of the two or three lines of the script that are its point.
        mistake: What to do wrong.
        before: Lines of the script.
        after: What stands there when it is done wrong.
        says: What a run says then.
        remedy: What that means.
        terms: Terms of the glossary.
        names: Names of the CuTe DSL's reference.
        found_by: What else readers call it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: Words
    title: Words
    figure: Words
    question: Words
    text: Words
    then: Words
    marked: Annotated[tuple[Words, ...], Field(min_length=2, max_length=3)]
    mistake: Words
    before: Words
    after: str
    says: Words
    remedy: Words
    terms: tuple[Words, ...]
    names: tuple[Words, ...]
    found_by: tuple[Words, ...] = ()


class Course(BaseModel):
    """The pages in their order.

    Attributes:
        title: Title of their index.
        summary: What it says first.
        pages: The pages.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Words
    summary: Words
    pages: tuple[Lesson, ...]


def load(root: Path) -> Course | None:
    """The pages of a checkout; None where there are none.

    Raises:
        KnowledgeError: The file is not sound.
    """
    if not (root / SOURCE).is_file():
        return None
    with inputs.faults_as(KnowledgeError, SOURCE):
        return Course.model_validate(inputs.read_toml(root / SOURCE))


def script(lesson: Lesson) -> str:
    """Path of a page's script."""
    return f"{FOLDER}/{lesson.key}.py"


def wrong(lesson: Lesson, text: str) -> str:
    """The script with its mistake.

    Raises:
        KnowledgeError: The script does not have these lines once.
    """
    if text.count(lesson.before) != 1:
        raise KnowledgeError(f"{script(lesson)} must hold once: {lesson.before.strip()}")
    return text.replace(lesson.before, lesson.after)


def places(site: Site) -> Mapping[str, str]:
    """Page of each script."""
    course = load(site.root)
    if course is None:
        return {}
    return {SOURCE: INDEX} | {script(lesson): _path(lesson) for lesson in course.pages}


def pages(site: Site) -> list[Page]:
    """The index and the pages."""
    course = load(site.root)
    if course is None:
        return []
    rows = "\n".join(
        f"{number}. [{cell(lesson.title)}]({lesson.key}.md): {cell(lesson.question)}"
        for number, lesson in enumerate(course.pages, 1)
    )
    found_by = ["teach me Hopper", "Hopper course", "learn Hopper"]
    link = site.link(INDEX)
    learn = link("docs/learn/index.md")
    first = course.pages[0]
    setup = (
        "**You need** CUDA and a Linux on x86-64 with Python, no GPU. **You get** what a Hopper "
        "kernel is made of: who loads, who multiplies, and what each waits for. In a clone of the "
        f"repository (Source, at the top; [other systems]({learn})):\n\n"
        "```console\n$ python -m pip install nox\n"
        f"$ nox -s run -- examples/hopper/{first.key}.py   # the script of page 1\n```\n\n"
        f"**Begin with [{cell(first.title)}]({first.key}.md)**, and go on in order:"
    )
    following = (
        f"Then: [path D]({link('knowledge/learning-paths/d-hopper.toml')}), kernels of "
        "ours from a product to latent attention. CUTLASS's own Hopper examples "
        f"[in their order]({link('knowledge/learning-paths')}), and which run without a GPU."
    )
    content = sections(
        meta(description=course.summary, found_by=found_by),
        f"# {cell(course.title)}", cell(course.summary), setup, rows, following,
    )  # fmt: skip
    index = Page(INDEX, content, SOURCE, ("Learn", TITLE))
    known = {entry.key: place for entry, place in _reference(site)}
    made = [_page(site, course, number, known) for number in range(1, len(course.pages) + 1)]
    return [index, *made]


def _reference(site: Site) -> Iterator[tuple[Entry, str]]:
    for reference in load_all(site.root):
        for part in reference.parts:
            for entry in part.entries:
                yield entry, f"{part.file}#{entry.key}"


def _path(lesson: Lesson) -> str:
    return f"learn/hopper/{lesson.key}.md"


def _page(site: Site, course: Course, number: int, known: Mapping[str, str]) -> Page:
    lesson = course.pages[number - 1]
    page = _path(lesson)
    content = sections(*_parts(site, course, number, site.link(page), known))
    return Page(page, content, SOURCE, ("Learn", TITLE, f"{number} {lesson.title}"))


def _parts(
    site: Site, course: Course, number: int, link: Link, known: Mapping[str, str]
) -> Iterator[str]:
    lesson, count = course.pages[number - 1], len(course.pages)
    text = inputs.read_text(site.root / script(lesson))

    def prose(words: str) -> str:
        return rebase(neutralise(words), SOURCE, link)

    if lesson.figure not in hopper.FIGURES:
        raise KnowledgeError(f"{SOURCE}: no picture is called {lesson.figure!r}")
    yield meta(description=lesson.question, found_by=list(lesson.found_by))
    yield f"# {cell(lesson.title)}"
    yield f"Page {number} of {count}. {cell(lesson.question)}"
    yield prose(lesson.text)
    yield hopper.FIGURES[lesson.figure]()
    yield "## Run it"
    yield fence(text, "python", title=script(lesson), hl_lines=_marks(lesson, text))
    yield fence(f"$ nox -s run -- --counts {script(lesson)}", "console")
    yield prose(lesson.then)
    yield "## A mistake to make"
    yield prose(lesson.mistake)
    yield fence(_difference(lesson, text), "diff")
    yield "The run then says:"
    yield fence(lesson.says, "text")
    yield prose(lesson.remedy)
    yield "## Words and names"
    yield _words(site, lesson, link, known)
    if number < count:
        yield f"Next: [{cell(course.pages[number].title)}]({course.pages[number].key}.md)."
    else:
        yield f"Next: [path D]({link('knowledge/learning-paths/d-hopper.toml')})."


def _marks(lesson: Lesson, text: str) -> str:
    """Numbers of the lines that are the script's point."""
    lines, found = text.splitlines(), []
    for wanted in lesson.marked:
        places = [number for number, line in enumerate(lines, 1) if wanted in line]
        if len(places) != 1:
            raise KnowledgeError(f"{script(lesson)} must hold in one line: {wanted}")
        found += places
    return " ".join(map(str, sorted(found)))


def _difference(lesson: Lesson, text: str) -> str:
    lines = difflib.unified_diff(
        text.splitlines(), wrong(lesson, text).splitlines(), n=1, lineterm=""
    )
    return "\n".join(list(lines)[3:])


def _words(site: Site, lesson: Lesson, link: Link, known: Mapping[str, str]) -> str:
    terms = {term.slug: term for term in site.terms}
    for name in lesson.terms:
        if name not in terms:
            raise KnowledgeError(f"{SOURCE}: the glossary has no term {name!r}")
    for name in lesson.names:
        if name not in known:
            raise KnowledgeError(f"{SOURCE}: the reference has no name {name!r}")
    first = ", ".join(
        f"[{cell(terms[t].head.term)}]({link(terms[t].source)})" for t in lesson.terms
    )
    second = ", ".join(f"[{code(name)}]({link(known[name])})" for name in lesson.names)
    return f"{first}. In the reference: {second}."
