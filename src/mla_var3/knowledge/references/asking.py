"""Command ``knowledge api WORDS``: finds the passages of all references that answer a question.

Each answer comes with its file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge import search
from mla_var3.knowledge.pages import parse_markdown, sections_of
from mla_var3.knowledge.references.model import Entry, Part, Reference, load_all
from mla_var3.paths import relative

#: How often the words of a field are counted against once for those of a text.
KEY, TITLE = 6, 2
#: Hand-written pages that explain messages and checks.
TEXTS = ("docs/messages/*.md", "docs/learn/hopper/*.md")
#: Where the C++ documents are, once they are converted.
CONVERTED = "third_party/cutlass-docs"
#: Characters of an answer's text.
SHOWN = 240

_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class Answer:
    """A place that answers a question.

    Attributes:
        title: The name with its parameters, or the heading.
        says: What stands there, in short.
        where: ``file:line``.
        also: A second place: the snippet.
        score: How well it fits.
    """

    title: str
    says: str
    where: str
    also: str = ""
    score: float = 0.0

    def __str__(self) -> str:
        also = f"\n    snippet {self.also}" if self.also else ""
        return f"{self.title}\n    {self.says}\n    {self.where}{also}"


@dataclass(frozen=True)
class _Document:
    answer: Answer
    keys: tuple[str, ...]
    words: list[str]


def answers(question: str, root: Path, top: int = 8) -> list[Answer]:
    """The places that fit a question best.

    Args:
        question: Words, or a name.
        root: Top of the checkout.
        top: Most answers.

    Raises:
        KnowledgeError: The question has no word to look for.
    """
    wanted = words(question)
    if not wanted:
        raise KnowledgeError(f"query {question!r} has no word to look for")
    documents = list(_documents(root))
    scored = search.scores([document.words for document in documents], search.meant(wanted))
    asked = question.strip().casefold()
    found = [
        (score * _fit(document, asked, wanted), document.answer)
        for score, document in zip(scored, documents, strict=True)
        if score > 0
    ]
    best = sorted(found, key=lambda item: -item[0])[:top]
    return [
        Answer(answer.title, answer.says, answer.where, answer.also, score)
        for score, answer in best
    ]


def words(text: str) -> list[str]:
    """Word stems, names of several words in their parts: ``PipelineTmaStore`` is three."""
    return search.words(_CAMEL.sub(" ", text))


def _fit(document: _Document, asked: str, wanted: list[str]) -> float:
    """How much a score counts: most where the question is the name, less for each word missing."""
    if asked in (key.casefold() for key in document.keys):
        return 100.0
    held, each = set(document.words), set(wanted)
    share = sum(1 for word in each if held & {word, *search.alike().get(word, ())}) / len(each)
    return share**3


def _documents(root: Path) -> Iterator[_Document]:
    for reference in load_all(root):
        for part in reference.parts:
            for entry in part.entries:
                yield _of_entry(reference, part, entry)
    for pattern in TEXTS:
        for file in sorted(root.glob(pattern)):
            yield from _of_text(file, root)
    for file in sorted((root / CONVERTED).rglob("*.md")):
        yield from _of_text(file, root)


def _of_entry(reference: Reference, part: Part, entry: Entry) -> _Document:
    chapter = part.chapter
    title = f"{entry.key}{entry.name.signature}"
    also = f"{entry.cell.file}:{entry.cell.line}" if entry.cell else ""
    said = f"{reference.head.title}, {chapter.title}: {entry.says}"
    short, detail = entry.key.partition(".")[2], entry.detail
    found = (
        words(entry.key) * KEY
        + words(f"{chapter.title} {' '.join(chapter.found_by)} {reference.head.title}") * TITLE
        + words(f"{entry.says} {entry.note} {' '.join(entry.sought)}") * TITLE
        + words(f"{' '.join(detail.args.values())} {detail.gives} {detail.left_out}")
        + words(f"{entry.name.signature} {' '.join(entry.name.members)}")
    )
    where = f"{entry.file}:{entry.line}"
    keys = (entry.key, short, short.rpartition(".")[2])
    return _Document(Answer(title, said, where, also), keys, found)


def _of_text(file: Path, root: Path) -> Iterator[_Document]:
    text = file.read_text(encoding="utf-8", errors="replace")
    # Front matter goes, and lines keep their numbers.
    text = _FRONT.sub(lambda found: "\n" * found.group().count("\n"), text)
    name = relative(file, root)
    heads: list[str] = []
    for section in sections_of(text, 1, parse_markdown(text)):
        heads = [*heads[: section.level - 1], section.title]
        said = " ".join(_HEADING.split(section.text)[0].split())
        short = said if len(said) <= SHOWN else f"{said[:SHOWN].rsplit(' ', 1)[0]} ..."
        answer = Answer(": ".join(heads), short, f"{name}:{section.line}")
        found = words(section.title) * KEY + words(" ".join(heads[:-1])) * TITLE + words(said)
        yield _Document(answer, (section.title,), found)


def told(found: Sequence[Answer]) -> str:
    """Answers as text, a blank line between them."""
    return "\n\n".join(map(str, found)) or "no reference holds any of these words"
