"""Checks of learning paths and their examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mla_var3.knowledge import learning
from mla_var3.knowledge.checks.base import Check, Finding
from mla_var3.knowledge.markdown import NUMBER_WITH_UNIT
from mla_var3.knowledge.pages import Catalogue


class LearningFile(Check):
    """A learning path or an example is a TOML file of the schema, and each step has its example."""

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


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _words(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _words(inner)
