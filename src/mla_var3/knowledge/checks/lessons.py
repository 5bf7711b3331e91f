"""Lint checks of learning paths and annotated examples: schema, and names that must exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mla_var3.errors import HyperMlaError
from mla_var3.examples import course, learning, pin
from mla_var3.examples.model import Example
from mla_var3.knowledge.checks.base import Check, Finding
from mla_var3.knowledge.markdown import NUMBER_WITH_UNIT
from mla_var3.knowledge.pages import Catalogue


class LearningFile(Check):
    """A learning path or an example is a TOML file of the schema, and each step's files exist."""

    id = "learning-file"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """What is wrong with the files; nothing where there are none."""
        for file, message in learning.read(catalogue.root)[1]:
            yield self.finding(file, (1, message))


class LearningNumber(Check):
    """The words of a learning path or an example hold no number with a unit: they cite nothing."""

    id = "learning-number"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Figures in titles, summaries, steps and annotations."""
        found = learning.read(catalogue.root)[0]
        for folder, items in ((learning.PATHS, found.paths), (learning.EXAMPLES, found.examples)):
            for name, item in items.items():
                for text in _words(item.model_dump()):
                    for match in NUMBER_WITH_UNIT.finditer(text):
                        message = f"{match.group()!r} is a figure without a source"
                        yield self.finding(f"{folder}/{name}.toml", (1, message))


class LearningPinned(Check):
    """A learning path names examples that the pinned tree has.

    `examples index` writes each with the commit of the pin; one that moved away keeps the old one.
    """

    id = "learning-pinned"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Steps at examples of another commit, or that a fetched tree lacks."""
        found = learning.read(catalogue.root)[0]
        for name, number, step in found.steps():
            example = found.examples.get(step.example or "")
            if example and (message := _unpinned(catalogue.root, example)):
                file = f"{learning.PATHS}/{name}.toml"
                yield self.finding(file, (1, f"step {number}: {message}"))


class LearningPattern(Check):
    """A learning path names patterns that exist."""

    id = "learning-pattern"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Ids under `patterns` that no page has."""
        known = {page.pattern.id for page in catalogue.patterns if page.meta}
        for name, number, step in learning.read(catalogue.root)[0].steps():
            for pattern in step.patterns:
                if pattern not in known:
                    message = f"step {number} names the pattern {pattern!r}, which no page has"
                    yield self.finding(f"{learning.PATHS}/{name}.toml", (1, message))


class LearningPlace(Check):
    """A step about a version names one that exists, and texts that stand once in its module."""

    id = "learning-place"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Versions that are gone, and places that are gone or not unique."""
        for name, number, step in learning.read(catalogue.root)[0].steps():
            for message in _places(catalogue.root, step):
                file = f"{learning.PATHS}/{name}.toml"
                yield self.finding(file, (1, f"step {number}: {message}"))


def _unpinned(root: Path, example: Example) -> str:
    try:
        pinned = pin.load(root)
    except HyperMlaError as error:
        return str(error)
    if (example.repository, example.commit) != (pinned.address, pinned.commit):
        return f"{example.path} is of commit {example.commit[:12]}, and {pin.PIN} pins {pinned.tag}"
    fetched = root / pin.FOLDER
    if (fetched / pin.STAMP).is_file() and not (fetched / example.path).is_file():
        return f"{pinned.tag} has no {example.path}"
    return ""


def _places(root: Path, step: learning.Step) -> Iterator[str]:
    if step.version is None:
        return
    try:
        course.source_of(step.version)
    except HyperMlaError as error:
        yield str(error)
        return
    for place in step.places:
        source, line = course.place_of(root, step.version, place)
        count = (root / source).read_text(encoding="utf-8").count(place.find) if line else 0
        if count != 1:
            yield f"{place.find!r} stands {count} times in {source}, not once"


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _words(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _words(inner)
