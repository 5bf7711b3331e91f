"""Looking at pages as a browser would: links that lead nowhere, and markup that could run."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import markdown
import yaml

from generators.write.page import Page

ROOT = Path(__file__).parents[2]


class _Loader(yaml.SafeLoader):
    """mkdocs.yml uses tags of its own; they do not matter here."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


@functools.cache
def _extensions() -> tuple[list[str], dict[str, Any]]:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
    names, settings = [], {}
    for entry in config["markdown_extensions"]:
        name, options = next(iter(entry.items())) if isinstance(entry, dict) else (entry, {})
        names.append(name)
        settings[name] = options or {}
    return names, settings


def html_of(text: str) -> str:
    """Markdown as the site renders it, by the extensions of mkdocs.yml."""
    names, settings = _extensions()
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    return markdown.markdown(text, extensions=names, extension_configs=settings)


class Seen(HTMLParser):
    """What of a page matters to its reader's safety and way.

    Attributes:
        links: Targets of links and images.
        anchors: Ids.
        scripts: What the page would run.
        text: Words.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.scripts: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        # Instant navigation runs every script element, whatever its type.
        if tag in {"script", "iframe", "object", "embed", "base", "link", "meta"}:
            self.scripts.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or re.match(r"\s*(javascript|data|vbscript):", value or ""):
                self.scripts.append(f"{tag} {name}={value}")
        if found.get("id"):
            self.anchors.add(str(found["id"]))
        for name in ("href", "src"):
            if found.get(name) and tag != "use":
                self.links.append(str(found[name]))

    def handle_data(self, data: str) -> None:
        self.text += data


def see(page: Page) -> Seen:
    """A page of Markdown as the site renders it."""
    assert isinstance(page.content, str)
    return _seen(page.content)


@functools.lru_cache(maxsize=500)  # Tests look at the same pages, but for one, again and again.
def _seen(text: str) -> Seen:
    return Seen(html_of(text))


def dead_links(pages: Iterable[Page], among: Iterable[Page]) -> Iterator[str]:
    """Links of ``pages`` that lead to no page, file or anchor of ``among``."""
    known = {page.path: page for page in among}
    anchors: dict[str, set[str]] = {}
    for page in pages:
        for target in see(page).links:
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            path = path.partition("?")[0]  # The advisor's page takes sizes by it.
            goal = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), path))
            goal = goal if path else page.path
            if goal not in known:
                yield f"{page.path}: {target}"
            elif anchor and goal.endswith(".md"):
                if goal not in anchors:
                    text = str(known[goal].content)
                    modules = set(re.findall(r"^::: (\S+)", text, re.MULTILINE))
                    anchors[goal] = see(known[goal]).anchors | modules
                if anchor not in anchors[goal]:
                    yield f"{page.path}: {target} (no such anchor)"
