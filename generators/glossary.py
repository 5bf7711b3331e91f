"""Abbreviations of the glossary, which the site explains wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from generators.page import Page
from mla_var3.knowledge.pages import parse_markdown, sections_of

if TYPE_CHECKING:
    from generators.site import Site

SOURCE, PAGE = "docs/glossary.md", "glossary.md"
_ABBREVIATION = re.compile(r"[A-Z][A-Z0-9]+(?:_[0-9a-z]+)?")


def abbreviations(text: str) -> dict[str, str]:
    """First sentence of each entry whose heading is an abbreviation, or names some.

    Args:
        text: The glossary: an entry a ``###`` heading.
    """
    found = {}
    for section in sections_of(text, 1, parse_markdown(text)):
        if section.level == 3:
            for name in map(str.strip, section.title.split(",")):
                if _ABBREVIATION.fullmatch(name):
                    found[name] = _sentence(section.text)
    return found


def _sentence(text: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
    words = re.sub(r"[`*$]", "", words)
    return re.split(r"(?<=[a-z0-9)])[.;:](?= |$)", words)[0]


def explained(page: Page, known: Mapping[str, str]) -> Page:
    """A page with the definitions that Markdown's ``abbr`` extension reads."""
    if not isinstance(page.content, str) or not page.path.endswith(".md") or page.path == PAGE:
        return page
    lines = "\n".join(f"*[{name}]: {known[name]}" for name in sorted(known) if name in page.content)
    return replace(page, content=f"{page.content.rstrip()}\n\n{lines}\n") if lines else page


def load(site: Site) -> dict[str, str]:
    """The abbreviations of a checkout; none without a glossary."""
    file = site.root / SOURCE
    return abbreviations(file.read_text(encoding="utf-8")) if file.is_file() else {}
