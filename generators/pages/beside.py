"""Makes a page per pair of versions of which a text states the mean: every problem behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from generators.model import problems, stories
from generators.model.site import Site
from generators.write import figures
from generators.write.page import Page
from generators.write.text import cell, meta, sections, table
from mla_var3.evidence import Record, address
from mla_var3.evidence.compare import time_text
from mla_var3.knowledge import directives, markdown, metrics
from mla_var3.knowledge.directives import Beside
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads import workloads

FOLDER = "results/beside"
#: Times of a table, with what they are.
TIMES: Mapping[str, str] = {"total_us": "one launch", "sustained_us": "back to back"}


def _pairs(site: Site) -> dict[str, Beside]:
    """What texts state the mean of, by the address that they link to."""
    found: dict[str, Beside] = {}
    texts = [text.body for text in site.catalogue.documents]
    texts += [story.model_dump_json() for story in stories.load_all(site.root)]
    for text in texts:
        for item in markdown.directives(text):
            if item.name == "mean":
                beside = directives.beside(site.catalogue, *item.arguments[:3])
                found[beside.address] = beside
    return found


def _page(beside: Beside) -> str:
    words = f"{beside.first} {beside.second} {beside.run}".replace("/", " ")
    return f"{FOLDER}/{re.sub(r'[^a-z0-9]+', '-', words.lower())}.md"


def places(site: Site) -> Mapping[str, str]:
    """The page of each pair, by the address that a stated mean links to."""
    return {name: _page(beside) for name, beside in _pairs(site).items()}


def pages(site: Site) -> list[Page]:
    """A page per pair, out of the navigation: it stands behind a figure."""
    return [_made(site, beside) for beside in _pairs(site).values()]


def _made(site: Site, beside: Beside) -> Page:
    path = _page(beside)
    link = site.link(path)
    (mine, name), (theirs, other) = _called(beside, beside.first), _called(beside, beside.second)
    title = f"{name} beside {other}"
    shown = [metric for metric in TIMES if all(_states(pair, metric) for pair in beside.pairs)]
    head = ["Problem"]
    for metric in shown:
        head += [f"{name}, {TIMES[metric]}", f"{other}, {TIMES[metric]}", f"Of {name}"]
    means = [f"{TIMES[metric]} {cell(name)} takes {time_text(beside.mean(metric))}"
             for metric in shown]  # fmt: skip
    ordered = sorted(beside.pairs, key=lambda pair: problems.problem_of(pair[1]).order)
    return Page(
        path,
        sections(
            meta(title=title, description=f"Every problem of run {beside.run}"),
            f"# {cell(title)}",
            f"All {len(ordered)} problems at which run {beside.run} timed both {cell(mine)} and "
            f"{cell(theirs)}. In the geometric mean over them {', and '.join(means)} than "
            f"{cell(other)}. Each time leads to its record.",
            table(head, [_row(pair, shown, link) for pair in ordered]),
        ),
        listed=False,
    )


def _called(beside: Beside, version: str) -> tuple[str, str]:
    """A version as records name it, and as the table calls it."""
    _, layer, design, number = version.split("/")
    peers = workloads()[layer].peers
    return f"{peers.get(design, design)} {number}", peers.get(design, number)


def _states(pair: tuple[Record, Record], metric: str) -> bool:
    wanted = metrics.metric(metric)
    return all(metrics.readings_of(record, wanted) for record in pair)


def _row(pair: tuple[Record, Record], shown: list[str], link: Link) -> list[str]:
    other, mine = pair
    return [cell(str(problems.problem_of(mine))), *_times(mine, other, shown, link)]


def _times(mine: Record, other: Record, shown: list[str], link: Link) -> Iterator[str]:
    for metric in shown:
        values = []
        for record in (mine, other):
            value = float(metrics.reading(record, metric, None).value)
            values.append(value)
            yield f"[{figures.amount(metric, value)}]({link(f'{address(record)}@{record.run}')})"
        yield time_text(values[0] / values[1])
