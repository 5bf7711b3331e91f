"""Collects links, symbols and figures from the workloads' analyses for pages of all workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from generators.model.site import Site
from generators.write.figures import layer_title
from generators.write.text import cell
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link


def advisors(site: Site, link: Link) -> Iterator[str]:
    """Links to the pages where a reader asks for sizes."""
    for layer in site.analyses:
        with suppress(KnowledgeError):  # A checkout without the workload's text has no such page.
            address = link(f"knowledge/workloads/{layer}.md")
            yield f"[the {cell(layer_title(layer))} advisor]({address})"


def guides(site: Site, link: Link) -> Iterator[str]:
    """Links to pages that choose for a reader, the shortest way to an answer."""
    for analysis in site.analyses.values():
        yield from analysis.guides(site, link)


def comparisons(site: Site, link: Link) -> Iterator[str]:
    """Links to where kernels are compared with those of other libraries."""
    for analysis in site.analyses.values():
        with suppress(KnowledgeError):
            yield analysis.results(link)


def symbols(site: Site) -> str:
    """What the names of sizes stand for."""
    said = "; ".join(analysis.SYMBOLS for analysis in site.analyses.values())
    return f" Sizes: {said}." if said else ""


def figure(site: Site, name: str) -> str | None:
    """The picture that an analysis has of a name; None where none has."""
    drawn = (analysis.FIGURES.get(name) for analysis in site.analyses.values())
    draw = next(filter(None, drawn), None)
    return draw(site) if draw else None


def sentence(site: Site, name: str) -> Callable[[Site, Link], str] | None:
    """What makes the computed sentence of a name; None where no analysis has it."""
    made = (analysis.SENTENCES.get(name) for analysis in site.analyses.values())
    return next(filter(None, made), None)
