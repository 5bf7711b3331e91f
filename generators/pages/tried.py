"""Collects what was tried in a design and failed: from its devlog, and from times of one run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generators.model import compare
from generators.model.columns import design_title
from generators.model.compare import Verdict
from generators.model.site import Site
from generators.write import devlogs, figures, remarks
from generators.write.source import repo_name
from generators.write.text import cell
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Document, Entry
from mla_var3.runtime.registry import Version

TITLE = "Tried and failed"
#: What readers call it.
FOUND_BY = ("what failed", "failed ideas", "negative results", "what did not work")
#: Words of an insight that tells of something that did not pay.
_FAILED = re.compile(
    r"\b(slower|los[et]s?|gain(?:s|ed)? nothing|brought nothing|did not (?:pay|help)|"
    r"makes? no difference|no different|no faster|second wave|costs? time|"
    r"does not (?:pay|help)|not worth|failed|falsified|rejected|tried|in vain|costs? more)\b",
    re.IGNORECASE,
)
#: A verdict that says so without the mark of an entry that failed altogether.
_NEGATIVE = re.compile(r"\bnegative (?:result|with)\b")
#: Words of a problem whose sequences have few query rows, and what its lines are marked with.
_FEW = re.compile(r"\b(few (?:query )?(?:rows|heads)|16 heads|h=(?:8|16|32)\b)", re.IGNORECASE)
_MARK = "**few rows**"
#: A link of Markdown; what it leads to stands on the version's page.
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()\s]*(?: \"[^\"]*\")?\)(?:\{[^{}]*\})?")


def section(site: Site, versions: list[Version], link: Link) -> str:
    """A line per negative version, per insight that tells of a failure, and per loss in a record.

    Args:
        site: All inputs.
        versions: Those of a design.
        link: Addresses as seen from the page.
    """
    devlog = site.catalogue.devlogs.get(versions[0].design_key)
    lines = [_marked(line) for one in versions if devlog for line in _of(site, devlog, one, link)]
    if not lines:
        return ""
    told = (
        "From the devlog: versions with a negative verdict, and insights that tell of a loss. From "
        "the records: where a version was slower than the one before, in one run. Each version "
        "leads to its entry, with figures and sources."
    )
    if any(_MARK in line for line in lines):
        told += f" {_MARK} marks what was lost with few heads or few query rows per sequence."
        told += _elsewhere(site, versions, link)
    return f"## {TITLE} {{ #tried-and-failed }}\n\n{told}\n\n" + "\n".join(lines)


def _elsewhere(site: Site, versions: list[Version], link: Link) -> str:
    """The other designs whose subject is few rows, by the paragraph their devlog begins with."""
    found = []
    for designs in site.layers()[versions[0].layer]:
        devlog = site.catalogue.devlogs.get(designs[0].design_key)
        subject = devlog.body.partition("\n### ")[0] if devlog else ""
        if designs != versions and _FEW.search(subject):
            page = link(repo_name(designs[0].path.parents[1]))
            found.append(f"[{cell(design_title(designs[0]))}]({page}#tried-and-failed)")
    return f" More of them: {', '.join(found)}." if found else ""


def is_negative(entry: Entry) -> bool:
    """Whether an entry's verdict says that it failed."""
    return entry.negative or bool(_NEGATIVE.search(entry.verdict))


def insights(story: devlogs.Story) -> list[str]:
    """The first sentence of each insight of an entry, in one line and without links."""
    return [text for text in _all(story) if text]


def _all(story: devlogs.Story) -> Iterator[str]:
    return (_first(text) for text in _bullets(story.parts.get("Insights", "")))


def _marked(line: str) -> str:
    """A line, marked where it names few rows."""
    version, said, text = line.partition(": ")  # Neither a name nor an address has a colon.
    return f"{version}{said}{_MARK}: {text}" if _FEW.search(text) else line


def _of(site: Site, devlog: Document, version: Version, link: Link) -> Iterator[str]:
    """What one entry says of failures."""
    entry = next((one for one in devlog.entries if one.version == version.version), None)
    story = devlogs.entry(devlog, version.version, site.catalogue, link) if entry else None
    if entry is None or story is None:
        return
    address = link(repo_name(version.path)) + "#devlog"
    insights = list(_all(story))
    if entry.negative:
        why = next((text for text in insights if text), "")
        yield f"- [{version.version}]({address}), negative: **{story.verdict}** {why}".rstrip()
        insights = [text for text in insights if text != why]
    elif lost := _slower(compare.nearest(site, version), link):
        yield f"- [{version.version}]({address}): {lost}"
    for text in insights:
        if _FAILED.search(text):
            yield f"- [{version.version}]({address}): {text}"


def _slower(found: Verdict, link: Link) -> str:
    """Where records have a version slower than the one before; empty where nowhere."""
    lost = [step for step in found.steps if step.word == "slower"]
    if not lost or found.before is None:
        return ""
    worst = min(lost, key=lambda step: step.gain)
    said = figures.record_link(worst.run, link, worst.compared.said)
    where = cell(worst.at) if len(lost) == 1 else f"most at {cell(worst.at)}"
    alone = len(found.steps) == 1
    at = "its only problem" if alone else f"{len(lost)} of {len(found.steps)} problems, {where}"
    return f"{said} than {found.before.version} at {at}."


def _bullets(text: str) -> list[str]:
    """The points of a section, or its paragraphs."""
    return [part.removeprefix("- ").strip() for part in re.split(r"\n\n|\n(?=- )", text)]


def _first(text: str) -> str:
    """The first sentence in one line and without links."""
    plain = " ".join(_LINK.sub(r"\1", text).split())
    return next(iter(remarks.sentences(plain)), "")
