"""Builds the site's navigation, ``SUMMARY.md``, from the titles that pages carry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from generators.write.page import Page


@dataclass
class Node:
    """An entry of the navigation."""

    page: Page | None = None
    children: dict[str, Node] = field(default_factory=dict)


def summary(pages: Iterable[Page]) -> str:
    """The navigation as nested Markdown lists, in the order of the pages."""
    top = Node()
    for page in pages:
        node = top
        for title in page.nav:
            node = node.children.setdefault(title, Node())
        if page.nav:
            node.page = page
    return "\n".join(_lines(top, 0)) + "\n"


def _lines(node: Node, depth: int) -> Iterator[str]:
    for title, child in node.children.items():
        # The theme puts titles into HTML as they are.
        words = title.replace("<", "(").replace(">", ")")
        # The plugin leaves the escape of an underscore in a title that is no link.
        special = r"([\\`*_\[\]])" if child.page else r"([\\`*\[\]])"
        label = re.sub(special, r"\\\1", words)
        label = f"[{label}]({child.page.path})" if child.page else label
        yield f"{'    ' * depth}* {label}"
        yield from _lines(child, depth + 1)
