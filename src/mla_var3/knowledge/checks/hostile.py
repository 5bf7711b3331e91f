"""Lint check for active content: refuses text that would run in a browser or during the build."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mla_var3 import inputs
from mla_var3.errors import HyperMlaError
from mla_var3.knowledge import sanitizing
from mla_var3.knowledge.checks.base import Check, Finding
from mla_var3.knowledge.pages import Catalogue
from mla_var3.paths import relative

#: Hand-written pages beside knowledge and devlogs, and files whose texts reach pages.
PAGES = ("CONTRIBUTING.md", "docs/**/*.md")
TABLES = ("knowledge/**/*.toml", "third_party/*.toml", "examples/**/*.toml")
#: What tools wrote, but for the tables of suites, whose reports hold ``<object at 0x>`` by nature.
FIGURES = ("results/compiles/*.json", "results/court/*.json", "knowledge/**/*.json")
#: A record without these holds no markup; most are made by the tool alone.
_SUSPECT = ("<", "\\u003", ":::", "](")


class ActiveContent(Check):
    """A text holds only what Markdown makes: no HTML of its own, no address that runs.

    Each is rendered as the site renders it, and what its allow-list drops is named. Three colons
    are a directive that runs code while the site is built; they stand in generated pages alone.
    """

    id = "active-content"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Texts of knowledge, devlogs, hand-written pages, tables and records."""
        for file, line, text in _texts(catalogue):
            for offset, fault in sanitizing.faults(text):
                yield self.finding(file, (line + text.count("\n", 0, offset), fault))


def _texts(catalogue: Catalogue) -> Iterator[tuple[str, int, str]]:
    """File, line and text of whatever a page may show."""
    seen = set()
    for document in catalogue.documents:
        seen.add(document.name)
        yield document.name, document.line_at(0), document.body
        fields = document.meta.model_dump(mode="json") if document.meta else {}
        yield from ((document.name, 1, text) for text in _leaves(fields))
    for file in _files(catalogue.root, PAGES):
        if (name := relative(file, catalogue.root)) not in seen:
            yield from ((name, 1, text) for text in _page(file))
    for file in _files(catalogue.root, TABLES):
        yield from _strings(file, catalogue.root, inputs.read_toml)
    for file in _files(catalogue.root, FIGURES):
        yield from _strings(file, catalogue.root, inputs.read_json)
    for file in catalogue.record_files():
        if any(word in file.read_text("utf-8", errors="replace") for word in _SUSPECT):
            yield from _strings(file, catalogue.root, inputs.read_json)


def _files(root: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(root.glob(pattern))


def _page(file: Path) -> Iterator[str]:
    """The body of a page, and the texts of its front matter."""
    import frontmatter

    try:
        read = frontmatter.loads(inputs.read_text(file))
    except Exception:  # noqa: BLE001  # Its front matter is whatever YAML makes of it.
        yield file.read_text("utf-8", errors="replace")
        return
    yield read.content
    yield from _leaves(read.metadata)


def _strings(file: Path, root: Path, read: Any) -> Iterator[tuple[str, int, str]]:
    """Texts in a table, with the line that each begins on; other checks say what is unreadable."""
    try:
        lines = inputs.read_text(file).splitlines()
        found = list(_leaves(read(file)))
    except HyperMlaError:
        return
    for text in found:
        first = json.dumps(text.strip().split("\n")[0], ensure_ascii=False)[1:-1]
        at = next((n for n, line in enumerate(lines, 1) if first and first in line), 1)
        yield relative(file, root), at, text


def _leaves(value: Any) -> Iterator[str]:
    """Every text in nested tables, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(key)
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
