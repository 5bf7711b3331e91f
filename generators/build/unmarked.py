"""Python-Markdown extension for speed: skips the search for inline markup in text without any.

Python-Markdown searches every text for each of 17 kinds of inline markup. Cells of tables, of which
the site has most, rarely hold any.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

#: What some inline markup of the site's extensions starts with; all but a line break is one mark.
_START = re.compile(r"[\\`$\[!<*_&@]|  \n")


class _Unmarked(Treeprocessor):
    def run(self, root: Element) -> None:
        for element in root.iter():
            element.text, element.tail = _atomic(element.text), _atomic(element.tail)


def _atomic(text: str | None) -> str | None:
    """Text without markup as the kind of string that Python-Markdown leaves alone."""
    return text if not text or _START.search(text) else AtomicString(text)


class UnmarkedExtension(Extension):
    """Marks text that holds no inline markup, so that Python-Markdown does not search it."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register right before inline markup, whose priority is 20."""
        md.treeprocessors.register(_Unmarked(md), "unmarked", 20.5)


def makeExtension(**settings: Any) -> UnmarkedExtension:
    """What Python-Markdown calls."""
    return UnmarkedExtension(**settings)
