"""mkdocs hook that builds the search index from every page as it is rendered.

The theme's own index is left empty, since every page would fetch it. Here each section keeps its
prose apart from tables and code, and a term its synonyms; the first entry holds words that mean the
same. ``docs/assets/js/search-worker.js`` fetches all at the first key that a reader presses.
"""

from __future__ import annotations

import html
import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority

from mla_var3.knowledge import search

#: Words of tables and code that are kept of a section, each once.
REST_WORDS = 250
#: Pages that say how to do something: they come before pages that say what something is.
GUIDES = (
    "adopt/", "calling/", "change-the-formula/", "contribute/", "cute-dsl/", "emulator/",
    "examples/",
    "interpreter/", "learn/",
    "profiling/", "serving/", "six-steps/", "skills/",
)  # fmt: skip
#: How much a hit counts, by where its page lies; the first that fits.
WEIGHTS = (
    ("contributing/court/", 0.6),  # It names every fault there is.
    ("contributing/", 1.0),
    *((guide, 2.0) for guide in GUIDES),
    ("learning/examples/", 0.3),
    ("reference/", 0.2),
    ("results/", 0.6),
    ("records/", 0.4),
    ("catalogue/", 1.1),
    ("messages/", 1.6),
    ("diagnosis/", 1.3),
    ("api/", 1.3),
)
#: The same where the query is a sentence: pages that teach and pages that name a fault come before
#: listings, whose many words would have part of any sentence.
TOLD = (
    ("learn/", 1.3),
    ("glossary/", 1.3),
    ("messages/", 1.3),
    ("learning/examples/", 0.2),
    ("learning/", 0.6),
    ("worklog/", 0.8),
    ("results/", 0.5),
    ("api/", 0.5),
    ("devices/", 0.5),
    ("contributing/", 0.5),
    ("mla/nvidia-", 0.4),
    ("mla/amd-", 0.4),
    ("skills/", 0.4),
    ("campaigns/", 0.4),
    ("records/", 0.3),
    ("reference/", 0.1),
)
#: The same for the home page, which has a word of everything.
TOLD_HOME = 0.5
#: The same for a version of a kernel, which has a page beside that of its design.
_VERSION = re.compile(r"kernels/.+/v\d+/")
TOLD_VERSION = 0.4
#: Sections that list what is elsewhere, and how much a hit in them counts.
LISTS = frozenset({"Versions", "Related", "Interactions", "Performance evidence", "Pages"})
LISTED = 0.4
#: Letters of a page, two to three screens, above which a hit opens at the section with the words.
LONG = 5000
#: Pages of short notes, found as a whole.
WHOLE = ("learning/examples/",)

_log = logging.getLogger("mkdocs.plugins.hypermla.searching")
_HEADING = re.compile(r'<h([23])\b[^>]*?(?: id="([^"]*)")?[^>]*>(.*?)</h\1>', re.DOTALL)
#: A heading of a page's top, written ``## Title { #anchor .on-top }``: what stands below it belongs
#: to the page, and hits open at the page's top, unless another section answers better.
_ON_TOP = re.compile(r'^<h\d\b[^>]*\bclass="[^"]*\bon-top\b')
_PERMALINK = re.compile(r'<a class="headerlink".*?</a>', re.DOTALL)
_DROPPED = re.compile(r"<(svg|script|style|form|button|select)\b.*?</\1>", re.DOTALL)
_REST = re.compile(r"<(table|pre)\b.*?</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_BLOCK = re.compile(r"</?(?:p|li|div|td|th|tr|dd|dt|br|h\d|summary|figcaption)\b[^>]*>")


def documents(
    content: str, url: str, title: str, names: list[str], sections: Mapping[str, list[str]]
) -> Iterator[dict[str, Any]]:
    """The sections of a page, the page itself first.

    Args:
        content: Its HTML, without navigation.
        url: Its address from the top of the site.
        title: Its title.
        names: Other words by which it is to be found.
        sections: The same of a section, by its anchor.
    """
    clean = _DROPPED.sub(" ", content)
    every = [] if url.startswith(WHOLE) else list(_HEADING.finditer(clean))
    heads = [head for head in every if not _ON_TOP.match(head.group())]
    bounds = [*(head.start() for head in heads), len(clean)]
    weights = _weights(url)
    page = {"location": url, "title": title} | weights | _words(clean[: bounds[0]])
    if len(_plain(clean)) > LONG:
        page["long"] = True
    if len(heads) < len(every):
        page["answers"] = True
    yield page | ({"names": names} if names else {})
    for head, end in zip(heads, bounds[1:], strict=True):
        if head.group(2):
            called = _plain(_PERMALINK.sub("", head.group(3)))
            listed = LISTED if called in LISTS else 1
            yield {
                "location": f"{url}#{head.group(2)}",
                "title": called,
                "page": " ".join([title, *names]),
                **{name: weight * listed for name, weight in weights.items()},
                **({"names": sections[head.group(2)]} if head.group(2) in sections else {}),
            } | _words(clean[head.end() : end])


def _weights(url: str) -> dict[str, float]:
    """How much a hit on a page counts: for words, and for a sentence."""

    def of(table: tuple[tuple[str, float], ...]) -> float:
        return next((weight for start, weight in table if url.startswith(start)), 1.0)

    told = TOLD_VERSION if _VERSION.match(url) else of(TOLD) if url else TOLD_HOME
    return {"weight": of(WEIGHTS), "told": told}


def _words(part: str) -> dict[str, str]:
    """Prose of a part of a page, and each word of its tables and code once."""
    part = _PERMALINK.sub("", re.sub(r"<h1\b.*?</h1>", " ", part, flags=re.DOTALL))
    rest = " ".join(_plain(found.group()) for found in _REST.finditer(part))
    once = list(dict.fromkeys(rest.split()))[:REST_WORDS]
    return {"prose": _plain(_REST.sub(" ", part)), "rest": " ".join(once)}


def _plain(part: str) -> str:
    return " ".join(html.unescape(_TAG.sub("", _BLOCK.sub(" ", part))).split())


# -- the hook --------------------------------------------------------------------------------------

#: Sections of the build that is going on.
_found: list[dict[str, Any]] = []


def on_pre_build(config: Any) -> None:
    """Forget the build before this one, which `mkdocs serve` made in the same process."""
    _found.clear()


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Take the words of a page, and tell the theme's search to leave it alone."""
    if not (page.meta.get("search") or {}).get("exclude"):
        names = page.meta.get("found_by", [])
        # The navigation calls a version v3; a hit says of which kernel.
        title = html.unescape(str(page.meta.get("title") or page.title))
        sections = page.meta.get("sections", {})
        made = list(documents(content, page.url, title, names, sections))
        _found.extend(made)
        held = {found["location"].partition("#")[2] for found in made}
        for anchor in sorted(sections.keys() - held):
            _log.warning("%s: names for #%s, which is no section of it", page.url, anchor)
    page.meta["search"] = {"exclude": True}
    return content


@event_priority(-50)  # After the theme wrote its index, before its offline plugin copies that.
def on_post_build(config: Any) -> None:
    """Write what was found: to a file of its own, or where the offline site looks for it."""
    folder = Path(config.site_dir) / "search"
    theirs = json.loads((folder / "search_index.json").read_text(encoding="utf-8"))
    offline = "material/offline" in config.plugins
    found = [{"alike": [list(words) for words in search.ALIKE]}, *_found]
    if not offline:
        _write(folder / "documents.json", found)
    _write(folder / "search_index.json", theirs | {"docs": found if offline else []})


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
