"""Makes the pages of the Learn track: texts of docs/learn and the lessons of examples/lessons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from generators.model.site import Site
from generators.pages import told
from generators.pages.analyses import figure
from generators.write.page import Page
from generators.write.text import boxed, cell, choices, fence, meta, rebase, sections
from mla_var3 import inputs
from mla_var3.errors import InputError, KnowledgeError
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.markdown import neutralise

FOLDER, LESSONS = "docs/learn", "examples/lessons"
EXERCISES = f"{FOLDER}/exercises.md"
SOURCE = f"{LESSONS}/lessons.toml"
INDEX = "learn/lessons/index.md"
#: Where a text shows a picture that an analysis has.
_FIGURE = re.compile(r"\{\{ ([a-z-]+) \}\}")
#: Texts, in the order in which they are read, and their titles in the navigation.
TEXTS = {
    "index": "",
    "from-zero": "From zero to an MLA kernel",
    "first-kernel": "A first kernel, line by line",
    "cutile-to-machine-code": "One cuTile kernel down to machine code",
    "cutile-mla": "MLA decode in cuTile, from CUDA or Triton",
    "simplest-kernel": "The simplest MLA decode kernel, line by line",
    "exercises": "Exercises: write it yourself",
    "attention-and-mla": "Attention and MLA in ten minutes",
    "roofline": "The roofline and the regimes",
    "ampere-to-hopper": "From Ampere to Hopper",
    "hopper-to-blackwell": "From Hopper to Blackwell",
    "tensor-memory": "Tensor Memory, and a first tcgen05 tile",
    "pairs": "Pairs of CTAs",
    "rtx-5090": "With an RTX 5090",
}

Words = Annotated[str, Field(min_length=1)]


class Lesson(BaseModel):
    """One lesson; its script and what that printed lie beside the file.

    Attributes:
        title: Title of its page.
        question: What to answer before the script runs.
        choices: Answers to choose from.
        answer: What the run showed, and why.
        exercise: What to change next.
        solution: What comes of it.
        worth: Where to read what the step gained on a GPU.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Words
    question: Words
    choices: Annotated[tuple[Words, ...], Field(min_length=2)]
    answer: Words
    exercise: Words
    solution: Words
    worth: Words


class Course(BaseModel):
    """The lessons in their order.

    Attributes:
        title: Title of their index.
        summary: What it says first.
        lessons: The lessons.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Words
    summary: Words
    lessons: tuple[Lesson, ...]


def load(root: Path) -> Course | None:
    """The lessons of a checkout; None where there are none.

    Raises:
        KnowledgeError: The file is not sound.
    """
    if not (root / SOURCE).is_file():
        return None
    with inputs.faults_as(KnowledgeError, SOURCE):
        return Course.model_validate(inputs.read_toml(root / SOURCE))


def _texts(site: Site) -> list[str]:
    return [name for name in TEXTS if (site.root / FOLDER / f"{name}.md").is_file()]


def script(number: int) -> str:
    """Path of a lesson's script."""
    return f"{LESSONS}/lesson{number}.py"


def places(site: Site) -> Mapping[str, str]:
    """Page of each text and of each lesson's script."""
    found = {f"{FOLDER}/{name}.md": f"learn/{name}.md" for name in _texts(site)}
    if course := load(site.root):
        found[SOURCE] = INDEX
        found |= {script(n): _page(n) for n in range(1, len(course.lessons) + 1)}
    return found


def pages(site: Site) -> list[Page]:
    """The texts, then the lessons."""
    found = [_text(site, name) for name in _texts(site)]
    if course := load(site.root):
        found.append(_index(site, course))
        found += [_lesson(site, course, n) for n in range(1, len(course.lessons) + 1)]
    return found


def _page(number: int) -> str:
    return f"learn/lessons/{number}.md"


def _text(site: Site, name: str) -> Page:
    source, page = f"{FOLDER}/{name}.md", f"learn/{name}.md"
    text = inputs.read_text(site.root / source)
    nav = ("Learn", TEXTS[name]) if TEXTS[name] else ("Learn",)
    content = rebase(text, source, site.link(page))
    content = told.filled(site, source, content, site.link(page))
    content = _FIGURE.sub(lambda found: _figure(site, source, found[1]), content)
    return Page(page, content, source, nav)


def _figure(site: Site, source: str, name: str) -> str:
    drawn = figure(site, name)
    if drawn is None:
        raise KnowledgeError(f"{source}: no picture is called {name!r}")
    return drawn


def _index(site: Site, course: Course) -> Page:
    link = site.link(INDEX)
    rows = (
        f"{n}. [{cell(lesson.title)}]({link(script(n))}): {cell(lesson.question)}"
        for n, lesson in enumerate(course.lessons, 1)
    )
    write = _exercises(site, link)
    content = sections(f"# {cell(course.title)}", cell(course.summary), "\n".join(rows), write)
    return Page(INDEX, content, SOURCE, ("Learn", course.title))


def _exercises(site: Site, link: Link) -> str:
    """Where to go for kernels to write; empty where there are none."""
    if not (site.root / EXERCISES).is_file():
        return ""
    return f"Rather write than read? [Exercises, each with a solution]({link(EXERCISES)})."


def _lesson(site: Site, course: Course, number: int) -> Page:
    lesson, page = course.lessons[number - 1], _page(number)
    link = site.link(page)
    nav = ("Learn", course.title, f"{number} {lesson.title}")
    content = sections(*_parts(site, course, number, link))
    return Page(page, content, script(number), nav)


def _parts(site: Site, course: Course, number: int, link: Link) -> Iterator[str]:
    lesson, count = course.lessons[number - 1], len(course.lessons)

    def prose(text: str) -> str:
        return rebase(neutralise(text), SOURCE, link)

    yield meta(description=lesson.question, found_by=["lesson"])
    yield f"# {cell(lesson.title)}"
    yield f"Lesson {number} of {count}, about ten minutes, no GPU."
    yield boxed("question", "First a question", cell(lesson.question),
                choices("choice", lesson.choices))  # fmt: skip
    yield "Commit to an answer, then let the kernel say."
    yield "## Run it"
    yield fence(_read(site, script(number)), "python", title=script(number))
    yield fence(f"$ nox -s run -- {script(number)}", "console")
    yield "## What you should see"
    printed = fence(_read(site, script(number).replace(".py", ".txt")), "text")
    yield _folded("abstract", "What it printed here: run it first", printed)
    yield _folded("success", "The answer", prose(lesson.answer))
    yield "## Exercise"
    yield prose(lesson.exercise)
    yield _folded("tip", "One solution", prose(lesson.solution))
    yield "## What it is worth on a GPU"
    yield prose(lesson.worth)
    if number < count:
        following = course.lessons[number].title
        yield f"Next: [{cell(following)}]({link(script(number + 1))})."
    else:
        whole = f"{FOLDER}/from-zero.md"
        if (site.root / whole).is_file():
            yield f"Next: [read a whole MLA kernel]({link(whole)}#5-read-an-mla-kernel)."
        yield (
            f"Or go below the tiles: [paths over CUTLASS examples]"
            f"({link('knowledge/learning-paths')})."
        )
        yield _exercises(site, link)


def _read(site: Site, name: str) -> str:
    try:
        return inputs.read_text(site.root / name)
    except InputError as error:
        raise KnowledgeError(f"{name} {error.reason}: every lesson has it") from error


def _folded(kind: str, title: str, text: str) -> str:
    body = "\n".join(f"    {line}".rstrip() for line in text.splitlines())
    return f'??? {kind} "{title}"\n\n{body}'
