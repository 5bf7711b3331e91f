"""Makes the pages of learning paths and of their annotated CUTLASS examples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from generators.model.site import Site
from generators.pages import example_order
from generators.pages.catalogue import label
from generators.write.page import Page
from generators.write.text import (
    at_line,
    at_words,
    boxed,
    cell,
    choices,
    code,
    fence,
    fold,
    meta,
    rebase,
    sections,
    table,
)  # fmt: skip
from mla_var3.examples import course, show
from mla_var3.examples.learning import EXAMPLES, PATHS, Example, Learning, LearningPath, Place, Step
from mla_var3.examples.model import PATTERN_TITLES
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.markdown import neutralise

INDEX = "learning/index.md"
#: Place in the navigation.
NAV = ("Learn", "CuTe DSL: all paths")

_Prose = Callable[[str], str]
#: Words below which an example's page is found through its path alone.
SHORT = 150
_WORD = re.compile(r"(?<![\w/#.(])[A-Za-z][\w'-]*")


def path_source(name: str) -> str:
    """File of a learning path."""
    return f"{PATHS}/{name}.toml"


def example_source(name: str) -> str:
    """File of an example."""
    return f"{EXAMPLES}/{name}.toml"


def places(site: Site) -> Mapping[str, str]:
    """Page of each file."""
    learning = site.learning
    found = {path_source(name): f"learning/{name}.md" for name in learning.paths}
    found |= {example_source(name): f"learning/examples/{name}.md" for name in learning.examples}
    return found | {PATHS: INDEX, EXAMPLES: INDEX} if found else {}


def pages(site: Site) -> list[Page]:
    """The family's pages; none without a path or an example."""
    learning = site.learning
    if not learning.paths and not learning.examples:
        return []
    return [
        _index(site, learning, site.link(INDEX)),
        *(_path(site, learning, name, path) for name, path in learning.paths.items()),
        *(_example(site, learning, name, found) for name, found in learning.examples.items()),
    ]


def _index(site: Site, learning: Learning, link: Link) -> Page:
    paths = [
        [f"[{cell(path.title)}]({link(path_source(name))})",
         f'<span class="path-progress" data-path="{name}" data-steps="{len(path.steps)}">'
         f"{len(path.steps)}</span>",
         cell(path.summary)]
        for name, path in learning.paths.items()
    ]  # fmt: skip
    examples = [
        [f"[{cell(example.title)}]({link(example_source(name))})",
         cell(", ".join(example.topics)),
         ", ".join(f"[{cell(learning.paths[path].title)}]({link(path_source(path))})"
                   for path in learning.paths_through(name))]
        for name, example in learning.examples.items()
    ]  # fmt: skip
    found = table(["Path", "Steps", "What it is for"], paths)
    single = table(["Example", "Topics", "Step of"], examples)
    first, start = next(iter(learning.paths.items()), (None, None))
    order = example_order.section(site, learning, link)
    content = sections(
        meta(
            found_by=[
                "which CUTLASS example first",
                "where to start with CUTLASS in Python",
                "order of the CUTLASS examples",
                "first Hopper example",
                "does a CUTLASS example run without a GPU",
                "which CUTLASS examples can I skip",
                "CUTLASS python examples for Blackwell attention",
                "reading order of the CUTLASS examples",
                "examples folder is huge",
            ]
        ),
        "# Learn the CuTe DSL: paths over CUTLASS examples",
        "**Here for attention or MLA? Read NVIDIA's files in the order of the two tables below, "
        "and leave the rest out.** For a Hopper kernel take the second one."
        if order
        else "",
        f"New to the CuTe DSL, and time for all of it? Start with "
        f"[{cell(start.title)}]({link(path_source(first))}), the first of the [paths](#paths)."
        if first and start
        else "",
        order,
        "## Paths { #paths }",
        "Kernels of others and our own, read in an order in which each builds on those before, "
        "with questions and exercises. No GPU is needed. What you have done is remembered in this "
        "browser only.",
        found,
        "## Examples" if single else "",
        fold("Example by example", f"all {len(examples)}, with topics and path", single),
    )
    return Page(INDEX, content, None, NAV)


# -- a path ----------------------------------------------------------------------------------------


def _path(site: Site, learning: Learning, name: str, path: LearningPath) -> Page:
    source, address = path_source(name), f"learning/{name}.md"
    link = site.link(address)
    steps = (
        part for number in range(1, len(path.steps) + 1) for part in _step(site, name, number, link)
    )
    said = {f"step-{number}": list(step.found_by)
            for number, step in enumerate(path.steps, 1) if step.found_by}  # fmt: skip
    content = sections(
        meta(found_by=list(path.found_by), sections=said),
        f"# {cell(path.title)}",
        f'<div class="learning-path" data-path="{name}" data-steps="{len(path.steps)}"></div>',
        _prose(path.summary, source, link),
        _needs(path.prerequisites, learning, link),
        _prose(path.primer or "", source, link),
        course.SETUP,
        *steps,
    )
    return Page(address, content, source, (*NAV, path.title))


def _step(site: Site, name: str, number: int, link: Link) -> Iterator[str]:
    path, source = site.learning.paths[name], path_source(name)
    step = path.steps[number - 1]

    def prose(text: str) -> str:
        return _prose(text, source, link)

    yield f"## {number}. {cell(site.learning.title(step))} {{#step-{number}}}"
    yield prose(step.teaches)
    yield _needs(step.prerequisites, site.learning, link)
    yield f"Read: {_subject(site.learning, step, link)}"
    yield "**What to look for**"
    yield _list(map(prose, step.look))
    if seen := _seen(site, step, link, prose):
        yield from ("**In the source**", _list(seen))
    yield "**What the compiler makes of it**"
    yield from map(prose, course.how(site.learning, step))
    yield _list(map(neutralise, course.facts(site.root, site.learning, step)))
    yield from _exercise(name, number, step, prose, link)
    yield "**Ask yourself too**"
    for question in step.questions:
        yield _folded("question", prose(question.ask), prose(question.answer))
    yield "**What it teaches**"
    yield _list(_pattern(site, pattern, link) for pattern in step.patterns)
    if number < len(path.steps):
        yield f"Next: [{cell(site.learning.title(path.steps[number]))}](#step-{number + 1})"


def _exercise(name: str, number: int, step: Step, prose: _Prose, link: Link) -> Iterator[str]:
    """One question, and the command that shows its answer; what it prints waits to be asked."""
    exercise = step.exercise
    yield boxed("question", "Choose, then let the command say", prose(exercise.task),
                choices(f"step-{number}", exercise.choices))  # fmt: skip
    asked = f"$ {course.COMMAND} {course.letter(name)} {number} --answer ANSWER"
    yield fence(asked, "console")
    yield f"The command runs [{code(exercise.script)}]({link(exercise.file)}), which works it out."
    yield _folded("success", "What it prints, and why: choose first",
                  f"**{cell(exercise.answer)}**. {prose(exercise.why)}")  # fmt: skip


def _subject(learning: Learning, step: Step, link: Link) -> str:
    if step.version is not None:
        source = course.source_of(step.version)
        return f"[{code(source)}]({link(source)})"
    example = learning.examples[step.example or ""]
    notes = f"[annotated example]({link(example_source(step.example or ''))})"
    return f"[{code(example.path)}]({example.address()}), {notes}"


def _seen(site: Site, step: Step, link: Link, prose: _Prose) -> list[str]:
    """What to see at which line, each with its link."""
    if step.version is not None:
        found = [(course.place_of(site.root, step.version, x), x) for x in step.places]
        return [
            f"[{f'{place.file}, line' if place.file else 'Line'} {line}]"
            f"({_at(place, source, line, link)}), "
            f"{code(place.find)}: {prose(place.text)}"
            for (source, line), place in found
        ]
    example = site.learning.examples[step.example or ""]
    return [
        f"[Line {note.line}]({example.address(note.line)}): {prose(note.text)}"
        for note in site.learning.notes(step)
    ]


def _at(place: Place, source: str, line: int, link: Link) -> str:
    """Address of a place: a version's lines have anchors, of a file of the kit a copy is shown."""
    if place.file:
        return at_words(link(source), place.find)
    return link(at_line(source, line))


def _pattern(site: Site, id_: str, link: Link) -> str:
    found = (page for page in site.catalogue.patterns if page.pattern.id == id_)
    page = next(found, None)
    return code(id_) if page is None else f"[{label(page.pattern)}]({link(page.name)})"


def _folded(kind: str, title: str, text: str) -> str:
    """Text that readers unfold; the title is one line."""
    quoted = " ".join(title.split()).replace('"', "&quot;")
    body = "\n".join(f"    {line}".rstrip() for line in text.splitlines())
    return f'??? {kind} "{quoted}"\n\n{body}'


def _list(rows: Iterator[str] | list[str] | map[str]) -> str:
    return "\n".join(f"- {row}" for row in rows)


# -- an example ------------------------------------------------------------------------------------


def _example(site: Site, learning: Learning, name: str, example: Example) -> Page:
    source, address = example_source(name), f"learning/examples/{name}.md"
    link = site.link(address)
    steps = ", ".join(
        f"[{cell(learning.paths[path].title)}]({link(path_source(path))})"
        for path in learning.paths_through(name)
    )
    content = sections(
        f"# {cell(example.title)}",
        f"[{cell(example.path)}]({example.address()}) of {example.repository}, at commit "
        f"{example.commit[:12]}. Topics: {cell(', '.join(example.topics))}.",
        _prose(example.goal, source, link) if example.goal else "",
        f"A step of {steps}." if steps else "",
        *_checklist(example),
        *_annotations(example, source, link),
    )
    if len(_WORD.findall(content)) < SHORT:
        # Its path's page carries it: neither the search nor the navigation leads to so little.
        hidden = sections(meta(search={"exclude": True}), content)
        return Page(address, hidden, source, listed=False)
    return Page(address, content, source, (*NAV, "Examples", example.title))


def _checklist(example: Example) -> Iterator[str]:
    if not example.checklist:
        return
    rows = [
        [PATTERN_TITLES[found.pattern], neutralise(found.seen).replace("|", "\\|"),
         ", ".join(f"[{line}]({example.address(line)})" for line in found.lines)]
        for found in example.checklist
    ]  # fmt: skip
    yield from ("## What to look for", table(["Pattern", "Seen", "Lines"], rows))
    yield "## What the compiler makes of it"
    if made := show.how(example):
        yield f"{neutralise(made)}:"
    yield _list(map(neutralise, show.compiled_lines(example)))


def _annotations(example: Example, source: str, link: Link) -> Iterator[str]:
    notes = sorted(example.annotations, key=lambda note: note.line)
    if notes:
        yield "## Annotations"
    for note in notes:
        yield f"### Line {note.line}"
        yield f"[Source]({example.address(note.line)})"
        yield _prose(note.text, source, link)


def _prose(text: str, source: str, link: Link) -> str:
    """Text of a TOML file as Markdown: raw HTML disarmed, links to files resolved."""
    return rebase(neutralise(text), source, link)


def _needs(prerequisites: tuple[str, ...], learning: Learning, link: Link) -> str:
    if not prerequisites:
        return ""
    found = []
    for need in prerequisites:
        path, _, rest = need.partition(",")
        if path in learning.paths:
            linked = f"[{cell(learning.paths[path].title)}]({link(path_source(path))})"
            found.append(linked + cell(f",{rest}" if rest else ""))
        elif need in learning.examples:
            found.append(f"[{cell(learning.examples[need].title)}]({link(example_source(need))})")
        else:
            found.append(cell(need))
    return f"Know before: {', '.join(found)}."
