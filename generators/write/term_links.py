"""Python-Markdown extension that links the first use of each glossary term on a page.

``Linker`` adds a line ``*[name](target): meaning`` per term that a page may use; the extension
takes these lines away and turns the first use of each name in running text into a link. Headings,
code, links, tables and formulas stay as they are.

Not the extension abbr with the theme's tooltips, which was tried: over 23 pages it marks all 683
uses where 273 are the first of a page, those in headings too, and leads to no page of the glossary.
"""

from __future__ import annotations

import functools
import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor

Link = Callable[[str], str]

_LINE = re.compile(r"\*\[(?P<name>[^\]]+)\]\((?P<target>[^()\s]*)\): (?P<meaning>.+)")
_WORD = re.compile(r"[A-Za-z0-9_]+(?:[.+][A-Za-z0-9_+]+)*\+*")
#: Elements whose text a link would break or clutter.
_SKIPPED = {
    "a", "abbr", "button", "code", "figcaption", "figure", "form", "h1", "h2", "h3", "h4", "h5",
    "h6", "label", "math", "option", "pre", "script", "select", "style", "summary", "svg", "table",
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A name and where it leads.

    Attributes:
        name: A term or another name of it.
        page: Path of its page.
        meaning: Its definition, plain.
    """

    name: str
    page: str
    meaning: str


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name; case counts where it is an abbreviation."""
    words = _WORD.findall(name)
    return tuple(words if _is_abbreviation(name) else map(str.lower, words))


def _is_abbreviation(name: str) -> bool:
    return any(part.isupper() and len(part) > 1 for part in re.split(r"[\s-]", name))


def _singular(word: str) -> str:
    long = len(word) > 3 or word[:-1].isupper()  # SMs, but not "its"
    return word[:-1] if long and word.endswith("s") and not word.endswith("ss") else word


class Names:
    """Names by their first word, for finding them in text in one pass."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_first: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for name in names:
            words = words_of(name)
            if words:
                self._by_first.setdefault(words[0].lower(), []).append((words, name))
        for found in self._by_first.values():
            found.sort(key=lambda item: -len(item[0]))
        self._known: dict[str, list[tuple[tuple[str, ...], str]]] = {}

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Start, end and name of each use, the longest name at each place."""
        found = list(_WORD.finditer(text))
        skip = 0
        for index, word in enumerate(found):
            if index < skip:
                continue
            for words, name in self._starting(word.group()):
                rest = found[index : index + len(words)]
                if _match(words, rest, text):
                    yield word.start(), rest[-1].end(), name
                    skip = index + len(words)
                    break

    def _starting(self, word: str) -> list[tuple[tuple[str, ...], str]]:
        """Names that start with a word; a site asks for few words often."""
        if (known := self._known.get(word)) is None:
            key, one = word.lower(), _singular(word).lower()
            known = self._known[word] = self._by_first.get(key) or self._by_first.get(one, [])
        return known


def _match(words: tuple[str, ...], found: list[re.Match[str]], text: str) -> bool:
    if len(found) < len(words):
        return False
    for wanted, match in zip(words, found, strict=True):
        shown = match.group() if wanted != wanted.lower() else match.group().lower()
        if wanted != shown and wanted != _singular(shown):
            return False
    gaps = itertools.pairwise(found)
    return all(text[one.end() : other.start()] in (" ", "-", "\n") for one, other in gaps)


class Linker:
    """Says which terms a page may use."""

    def __init__(self, targets: Iterable[Target]) -> None:
        #: Places among all targets, targets and their words, by the first word.
        self._by_first: dict[str, list[tuple[int, Target, tuple[str, ...]]]] = {}
        for index, target in enumerate(targets):
            if words := words_of(target.name):
                self._by_first.setdefault(words[0], []).append((index, target, words))

    def lines(self, path: str, content: str) -> list[str]:
        """A line for the extension per name whose words ``content`` holds, side by side or not.

        A term that the page explains, or links to by hand, has a line without a target, so that no
        shorter name within it becomes a link.
        """
        folder = posixpath.dirname(path) or "."
        held = {form for word in set(_WORD.findall(content)) for form in _forms(word)}
        found = sorted(
            (index, target)
            for first in held & self._by_first.keys()
            for index, target, words in self._by_first[first]
            if held.issuperset(words)
        )
        lines = []
        for _, target in found:
            address = posixpath.relpath(target.page, folder)
            told = target.page == path or f"]({address})" in content
            lines.append(f"*[{target.name}]({'' if told else address}): {target.meaning}")
        return lines


@functools.cache  # Pages say the same words.
def _forms(word: str) -> tuple[str, ...]:
    """What a word of a text may stand for in a name."""
    return word, word.lower(), _singular(word), _singular(word.lower())


# -- the extension ---------------------------------------------------------------------------------


class _Lines(Preprocessor):
    """Takes the lines away."""

    def __init__(self, md: Markdown, found: list[Target]) -> None:
        super().__init__(md)
        self._found = found

    def run(self, lines: list[str]) -> list[str]:
        self._found.clear()
        while lines and (not lines[-1].strip() or _LINE.fullmatch(lines[-1])):
            if line := _LINE.fullmatch(lines.pop()):
                self._found.append(Target(line["name"], line["target"], line["meaning"]))
        return lines


class _Links(Treeprocessor):
    """Puts the links in."""

    def __init__(self, md: Markdown, found: list[Target]) -> None:
        super().__init__(md)
        self._found = found

    def run(self, root: Element) -> None:
        targets = {target.name: target for target in self._found}
        if targets:
            _link(root, targets, Names(targets))


def _link(element: Element, targets: dict[str, Target], names: Names) -> None:
    """Link the first uses below an element; a target that is linked is taken off the list."""
    made = _linked(element.text, targets, names)
    if made:
        element.text, links = made
        element[0:0] = links
    start = len(made[1]) if made else 0
    for child in list(element)[start:]:
        if child.tag not in _SKIPPED and "arithmatex" not in (child.get("class") or ""):
            _link(child, targets, names)
        if after := _linked(child.tail, targets, names):
            child.tail, links = after
            at = list(element).index(child) + 1
            element[at:at] = links


def _linked(
    text: str | None, targets: dict[str, Target], names: Names
) -> tuple[str, list[Element]] | None:
    """Text before the first link, and the links with the text behind each; None without any."""
    if not text or not targets or text.isspace():
        return None
    pieces: list[Any] = []
    position = 0
    for start, end, name in names.find(text):
        target = targets.get(name)
        if target is None or not target.page:
            continue
        for other in [key for key, value in targets.items() if value.page == target.page]:
            del targets[other]
        pieces += [text[position:start], _anchor(text[start:end], target)]
        position = end
    if not pieces:
        return None
    links = pieces[1::2]
    for anchor, tail in zip(links, [*pieces[2::2], text[position:]], strict=True):
        anchor.tail = tail
    return pieces[0], links


def _anchor(words: str, target: Target) -> Element:
    anchor = Element("a", {"class": "term", "href": target.page, "title": target.meaning})
    anchor.text = words
    return anchor


class TermsExtension(Extension):
    """Links first uses of terms."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the two halves."""
        found: list[Target] = []
        md.preprocessors.register(_Lines(md, found), "term-lines", 100)
        # After inline markup, before mkdocs turns file names into addresses.
        md.treeprocessors.register(_Links(md, found), "term-links", 5)


def makeExtension(**settings: Any) -> TermsExtension:
    """What Python-Markdown calls."""
    return TermsExtension(**settings)
