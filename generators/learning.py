"""Learning paths and their annotated examples; no page at all while there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from generators.page import Page
from generators.text import cell, rebase, sections, table
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.learning import EXAMPLES, PATHS, Example, Learning, LearningPath
from mla_var3.knowledge.markdown import neutralise

if TYPE_CHECKING:
    from generators.site import Site

INDEX = "learning/index.md"


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
        _index(learning, site.link(INDEX)),
        *(_path(site, learning, name, path) for name, path in learning.paths.items()),
        *(_example(site, learning, name, found) for name, found in learning.examples.items()),
    ]


def _index(learning: Learning, link: Link) -> Page:
    paths = [
        [f"[{cell(path.title)}]({link(path_source(name))})", str(len(path.steps)),
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
    content = sections(
        "# Learning",
        "Examples of other projects, read in an order in which each builds on those before.",
        found,
        f"## Examples\n\n{single}" if single else "",
    )
    return Page(INDEX, content, None, ("Learning",))


def _path(site: Site, learning: Learning, name: str, path: LearningPath) -> Page:
    source, address = path_source(name), f"learning/{name}.md"
    link = site.link(address)
    parts = []
    for number, step in enumerate(path.steps, 1):
        example = learning.examples[step.example]
        parts += [
            f"## {number}. {cell(example.title)}",
            _prose(step.teaches, source, link),
            _needs(step.prerequisites, learning, link),
            f"[Annotated example]({link(example_source(step.example))}) · "
            f"[source]({example.address()})",
        ]
    content = sections(
        f"# {cell(path.title)}",
        _prose(path.summary, source, link),
        _needs(path.prerequisites, learning, link),
        *parts,
    )
    return Page(address, content, source, ("Learning", path.title))


def _example(site: Site, learning: Learning, name: str, example: Example) -> Page:
    source, address = example_source(name), f"learning/examples/{name}.md"
    link = site.link(address)
    steps = ", ".join(
        f"[{cell(learning.paths[path].title)}]({link(path_source(path))})"
        for path in learning.paths_through(name)
    )
    parts = []
    for note in sorted(example.annotations, key=lambda note: note.line):
        parts += [
            f"### Line {note.line}",
            f"[Source]({example.address(note.line)})",
            _prose(note.text, source, link),
        ]
    content = sections(
        f"# {cell(example.title)}",
        f"[{cell(example.path)}]({example.address()}) of {example.repository}, at commit "
        f"{example.commit[:12]}. Topics: {cell(', '.join(example.topics))}.",
        f"A step of {steps}." if steps else "",
        "## Annotations" if parts else "",
        *parts,
    )
    return Page(address, content, source, ("Learning", "Examples", example.title))


def _prose(text: str, source: str, link: Link) -> str:
    """Text of a TOML file as Markdown: raw HTML disarmed, links to files resolved."""
    return rebase(neutralise(text), source, link)


def _needs(prerequisites: tuple[str, ...], learning: Learning, link: Link) -> str:
    if not prerequisites:
        return ""
    found = []
    for need in prerequisites:
        if need in learning.examples:
            found.append(f"[{cell(learning.examples[need].title)}]({link(example_source(need))})")
        elif need in learning.paths:
            found.append(f"[{cell(learning.paths[need].title)}]({link(path_source(need))})")
        else:
            found.append(cell(need))
    return f"Know before: {', '.join(found)}."
