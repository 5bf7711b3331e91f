"""Collects what was tried in a design and failed, from the negative entries of its devlog."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generators.model.site import Site
from generators.write import devlogs, remarks
from generators.write.source import repo_name
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Document
from mla_var3.runtime.registry import Version

TITLE = "Tried and failed"
#: What readers call it.
FOUND_BY = ("what failed", "failed ideas", "negative results", "what did not work")
#: Words of an insight that tells of something that did not pay.
_FAILED = re.compile(
    r"\b(slower|los[et]s?|gains? nothing|brought nothing|did not (?:pay|help)|"
    r"does not (?:pay|help)|not worth|failed|falsified|rejected|tried|in vain|costs? more)\b",
    re.IGNORECASE,
)
#: A link of Markdown; what it leads to stands on the version's page.
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()\s]*(?: \"[^\"]*\")?\)(?:\{[^{}]*\})?")


def section(site: Site, versions: list[Version], link: Link) -> str:
    """A line per negative version and per insight that tells of a failure; empty without one.

    Args:
        site: All inputs.
        versions: Those of a design.
        link: Addresses as seen from the page.
    """
    devlog = site.catalogue.devlogs.get(versions[0].design_key)
    lines = [line for one in versions for line in _of(site, devlog, one, link)] if devlog else []
    if not lines:
        return ""
    told = (
        "From the devlog: versions with a negative verdict, and insights that tell of a loss. "
        "Each link leads to the entry with its figures and sources."
    )
    return f"## {TITLE} {{ #tried-and-failed }}\n\n{told}\n\n" + "\n".join(lines)


def _of(site: Site, devlog: Document, version: Version, link: Link) -> Iterator[str]:
    """What one entry says of failures."""
    entry = next((one for one in devlog.entries if one.version == version.version), None)
    story = devlogs.entry(devlog, version.version, site.catalogue, link) if entry else None
    if entry is None or story is None:
        return
    address = link(repo_name(version.path)) + "#devlog"
    insights = [_first(text) for text in _bullets(story.parts.get("Insights", ""))]
    if entry.negative:
        why = next((text for text in insights if text), "")
        yield f"- [{version.version}]({address}), negative: **{story.verdict}** {why}".rstrip()
        insights = [text for text in insights if text != why]
    for text in insights:
        if _FAILED.search(text):
            yield f"- [{version.version}]({address}): {text}"


def _bullets(text: str) -> list[str]:
    """The points of a section, or its paragraphs."""
    return [part.removeprefix("- ").strip() for part in re.split(r"\n\n|\n(?=- )", text)]


def _first(text: str) -> str:
    """The first sentence in one line and without links."""
    plain = " ".join(_LINK.sub(r"\1", text).split())
    return next(iter(remarks.sentences(plain)), "")
