"""Makes the pages of the pattern catalog: a filterable table, metrics, and a page per pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from generators.model.columns import language_title
from generators.model.site import Site
from generators.pages import pattern_times, pattern_versions
from generators.write.page import Page
from generators.write.source import repo_name
from generators.write.text import cell, fold, rendered, sections, table
from generators.write.text import meta as page_meta
from mla_var3.errors import KnowledgeError
from mla_var3.examples.learning import PATHS
from mla_var3.knowledge import metrics, snippets
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Document
from mla_var3.knowledge.schema import (
    FOLDERS,
    SHARED,
    FrontMatter,
    Kind,
    TextFrontMatter,
    Trigger,
    scopes,
)

KIND_NAMES: dict[Kind, str] = {"optimization": "Optimizations", "anti-pattern": "Anti-patterns"}
INDEX, METRICS_PAGE = "catalogue/index.md", "catalogue/metrics.md"
#: The page of metrics as seen from a pattern's page.
_METRICS = "../metrics.md"
_ACRONYMS = {"tma": "TMA", "mma": "MMA", "l2": "L2", "dsl": "DSL", "k": "K"}


def pattern_path(meta: FrontMatter) -> str:
    """Where a pattern's page lies in the site."""
    folder = FOLDERS[meta.kind] if meta.scope == SHARED else meta.scope
    return f"catalogue/{folder}/{meta.id}.md"


def label(meta: FrontMatter) -> str:
    """Short name of a pattern, from its id: ``O2 head grouping``, ``Worker warps hint``."""
    words = [_ACRONYMS.get(word, word) for word in meta.id.split("-")]
    if meta.scope != SHARED:
        words = words[1:] or words
    return f"{words[0][:1].upper()}{words[0][1:]} {' '.join(words[1:])}".rstrip()


def places(site: Site) -> dict[str, str]:
    """Page of each pattern's file."""
    patterns = site.catalogue.patterns
    found = {page.name: pattern_path(page.pattern) for page in patterns}
    found |= {text.name: _text_path(text) for text in _texts(site)}
    found["knowledge"] = INDEX
    found |= {f"knowledge/{folder}": f"catalogue/{folder}/index.md" for folder in FOLDERS.values()}
    found |= {
        f"knowledge/languages/{name}": f"catalogue/{name}/index.md" for name in languages(patterns)
    }
    return found


def pages(site: Site) -> list[Page]:
    """Every page of the catalogue."""
    patterns = site.catalogue.patterns
    found = [index_page(site), metrics_page(site)]
    found += [kind_page(site, kind) for kind in FOLDERS]
    found += [language_page(site, name) for name in languages(patterns)]
    found += [pattern_page(site, document) for document in patterns]
    found += [text_page(site, text) for text in _texts(site)]
    return found


def _texts(site: Site) -> list[Document]:
    """Knowledge that is no pattern and no workload's: it lies directly in ``knowledge/``."""
    return [text for text in site.catalogue.texts if text.name.count("/") == 1]


def _text_path(text: Document) -> str:
    return f"catalogue/{text.path.stem}.md"


def text_page(site: Site, text: Document) -> Page:
    """Such a text, its evidence rendered."""
    path = _text_path(text)
    if not isinstance(text.meta, TextFrontMatter):
        raise KnowledgeError(f"{text.name} has no readable front matter: run knowledge lint")
    body = rendered(text, site.catalogue, site.link(path))
    names = page_meta(found_by=list(text.meta.found_by)) if text.meta.found_by else ""
    content = sections(names, f"# {cell(text.meta.title)}", body)
    return Page(path, content, text.name, ("Catalogue", text.meta.title))


def languages(patterns: Iterable[Document]) -> list[str]:
    """Languages that have overlays."""
    found = {document.pattern.scope for document in patterns} - {SHARED}
    return [name for name in scopes() if name in found]


# -- lists -----------------------------------------------------------------------------------------

Column = Callable[[FrontMatter], str]
_COLUMNS: dict[str, Column] = {
    "Kind": lambda meta: meta.kind,
    "Language": lambda meta: language_title(meta.scope),
    "Impact": lambda meta: meta.impact,
    "Regime": lambda meta: ", ".join(meta.regimes),
    "Arch": lambda meta: ", ".join(meta.archs),
    "Basis": lambda meta: meta.basis,
}


def pattern_table(documents: Iterable[Document], link: Link, columns: Iterable[str]) -> str:
    """Patterns as a Markdown table, a row each."""
    columns = list(columns)
    rows = []
    for meta in (document.pattern for document in documents):
        name = f"[{label(meta)}]({link(_source(meta))}): {cell(meta.title)}"
        rows.append([name, *(cell(_COLUMNS[column](meta)).replace("&#95;", "_")
                             for column in columns)])  # fmt: skip
    return table(["Pattern", *columns], rows)


def filterable(text: str, noun: str, facets: Iterable[str]) -> str:
    """A table that ``docs/assets/js/filter.js`` gives a form to filter by.

    Args:
        text: The Markdown table.
        noun: What its rows are, in the plural.
        facets: Columns to choose values of; several values in a cell are split at commas.
    """
    names = ",".join(facets)
    return (
        f'<div class="filter-table" data-noun="{noun}" data-facets="{names}" markdown="1">\n\n'
        f"{text}\n\n</div>"
    )


def index_page(site: Site) -> Page:
    """All patterns in one table that filters."""
    patterns, link = site.catalogue.patterns, site.link(INDEX)
    kinds = [document.pattern.kind for document in patterns]
    meanings = "\n".join(
        f"- **{basis}**: {text}." for basis, text in pattern_versions.BASIS_MEANING.items()
    )
    overlays = " and ".join(
        f"[{language_title(name)}]({name}/index.md)" for name in languages(patterns)
    )
    content = f"""# Catalogue

What makes kernels fast and what keeps them slow: {kinds.count("optimization")} optimizations \
and {kinds.count("anti-pattern")} anti-patterns, each with the metrics that point to it, the \
records or sources that prove it, and the kernel versions that use it.

You have a number and wonder what to do about it? Start from \
[metrics to patterns](metrics.md), or let `nox -s knowledge -- match RECORD` rank the patterns \
for a record. Ideas that looked right and did not pay stand apart: \
[what failed]({link("generators/pages/failed.py")}).
{f"What holds for one language only stands under {overlays}." if overlays else ""}

{filterable(pattern_table(patterns, link, _COLUMNS), "patterns", _COLUMNS)}

## What the grounds are

{meanings}
"""
    return Page(INDEX, content, None, ("Catalogue",))


def kind_page(site: Site, kind: Kind) -> Page:
    """The shared patterns of one kind."""
    path, name = f"catalogue/{FOLDERS[kind]}/index.md", KIND_NAMES[kind]
    shared = [
        document
        for document in site.catalogue.patterns
        if document.pattern.kind == kind and document.pattern.scope == SHARED
    ]
    text = pattern_table(shared, site.link(path), ("Impact", "Regime", "Basis"))
    content = f"""# {name}

{name} that hold whatever language a kernel is written in. The [catalogue](../index.md) lists all, \
with filters.

{text or "None yet."}
"""
    return Page(path, content, None, ("Catalogue", name))


def language_page(site: Site, language: str) -> Page:
    """What holds for one language only, and the shared patterns it adds to."""
    path, name = f"catalogue/{language}/index.md", language_title(language)
    link = site.link(path)
    patterns = site.catalogue.patterns
    own = [document for document in patterns if document.pattern.scope == language]
    versions = [version for version in site.versions if version.language == language]
    extends = [
        [
            f"[{label(shared.pattern)}]({link(shared.name)})",
            _list(found, link),
        ]
        for shared in patterns
        if shared.pattern.scope == SHARED
        if (found := [page for page in overlays_of(site, shared) if page in own])
    ]
    added = table(["Shared pattern", f"In {name}"], extends)
    listed = ", ".join(f"[{cell(v.key)}]({link(repo_name(v.path))})" for v in versions)
    content = f"""# {name}

What holds for kernels in {name} only.

{pattern_table(own, link, ("Kind", "Impact", "Regime", "Arch", "Basis"))}

## Shared patterns in {name}

{added or "No overlay names a shared pattern yet."}

## Kernels in {name}

{listed or "None yet."}
"""
    return Page(path, content, None, ("Catalogue", name))


def _list(documents: Iterable[Document], link: Link) -> str:
    return ", ".join(f"[{label(d.pattern)}]({link(d.name)})" for d in documents)


def _source(meta: FrontMatter) -> str:
    base = "knowledge" if meta.scope == SHARED else f"knowledge/languages/{meta.scope}"
    return f"{base}/{FOLDERS[meta.kind]}/{meta.id}.md"


# -- metrics ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricUse:
    """Which patterns speak of a metric.

    Attributes:
        triggered: Pattern with the trigger that names the metric; once per trigger.
        moved: Pattern that affects it, with the direction.
    """

    triggered: tuple[tuple[Document, Trigger], ...]
    moved: tuple[tuple[Document, str], ...]


def metric_uses(patterns: Iterable[Document]) -> dict[str, MetricUse]:
    """The metrics that a pattern speaks of, in catalogue order."""
    patterns = list(patterns)
    found = {}
    for name in metrics.catalogue():
        triggered = tuple(
            (document, trigger)
            for document in patterns
            for trigger in document.pattern.triggers
            if trigger.metric == name
        )
        moved = tuple(
            (document, document.pattern.affects[name])
            for document in patterns
            if name in document.pattern.affects
        )
        if triggered or moved:
            found[name] = MetricUse(triggered, moved)
    return found


def metrics_page(site: Site) -> Page:
    """Metrics with the patterns they point to."""
    link = site.link(METRICS_PAGE)
    rows = []
    for name, use in metric_uses(site.catalogue.patterns).items():
        metric = metrics.metric(name)
        unit = f" ({metric.unit})" if metric.unit else ""
        looks = [
            f"[{label(document.pattern)}]({link(document.name)}) when {span(str(trigger))}"
            for document, trigger in use.triggered
        ]
        moves = [
            f"{verb} with {_list(found, link)}"
            for verb, direction in (("falls", "down"), ("rises", "up"))
            if (found := [document for document, moves in use.moved if moves == direction])
        ]
        rows.append(
            [
                f'<span id="{name}">`{name}`</span>{unit}<br>{cell(metric.description)}',
                metric.origin,
                "<br>".join(looks),
                "<br>".join(moves),
            ]
        )
    head = ["Metric", "Origin", "Look at", "Moves"]
    shown = filterable(table(head, rows), "metrics", ("Origin",))
    schema = link("docs/contributing/metrics.md")
    content = f"""# Metrics to patterns

A metric of your record, and the patterns it points to: the condition that makes a pattern worth \
reading, and the patterns that move the metric when they are applied (or, anti-patterns, fallen \
into). Where a record states each metric is in the [list of all metrics]({schema}).

{shown}
"""
    return Page(METRICS_PAGE, content, None, ("Catalogue", "Metrics to patterns"))


# -- one pattern -----------------------------------------------------------------------------------


def overlays_of(site: Site, document: Document) -> list[Document]:
    """Pages of one language that interact with a shared pattern."""
    meta = document.pattern
    if meta.scope != SHARED:
        return []
    return [
        page
        for page in site.catalogue.patterns
        if page.pattern.scope != SHARED
        and (meta.id in page.pattern.interacts or page.pattern.id in meta.interacts)
    ]


def related(site: Site, document: Document) -> list[Document]:
    """Patterns that a page names under ``interacts``, or that name it; not its overlays."""
    meta = document.pattern
    overlays = {page.pattern.id for page in overlays_of(site, document)}
    return [
        page
        for page in site.catalogue.patterns
        if page.pattern.id not in {*overlays, meta.id}
        and (page.pattern.id in meta.interacts or meta.id in page.pattern.interacts)
    ]


def pattern_page(site: Site, document: Document) -> Page:
    """A pattern: its facts, its text with rendered evidence, the versions, its relations."""
    meta = document.pattern
    path = pattern_path(meta)
    link = site.link(path)
    group = KIND_NAMES[meta.kind] if meta.scope == SHARED else language_title(meta.scope)
    overlays, others = overlays_of(site, document), related(site, document)
    body = snippets.explained(
        rendered(document, site.catalogue, link), snippets.meanings(site.root), meta.scope, meta.id
    )
    parts = [
        page_meta(found_by=list(meta.symptoms)) if meta.symptoms else "",
        f"# {cell(meta.title)}",
        _chips(meta),
        pattern_times.section(site, meta, link),
        fold("Facts", "when it is worth reading, what it moves, on what it rests", _facts(meta)),
        body,
        "## Versions",
        pattern_versions.section(site, meta, link),
    ]
    if taught := _learned(site, meta.id, link):
        parts += ["## Learn it", f"Shown in {taught}."]
    if overlays:
        parts += ["## In a language", _relations(overlays, link)]
    if others:
        parts += ["## Related", _relations(others, link)]
    nav = ("Catalogue", group, label(meta))
    return Page(path, sections(*parts), document.name, nav)


def _learned(site: Site, id_: str, link: Link) -> str:
    """The steps of learning paths that show a pattern, as links."""
    return ", ".join(
        f"[{cell(site.learning.paths[name].title)}, step {number}]"
        f"({link(f'{PATHS}/{name}.toml')}#step-{number})"
        for name, number in site.learning.steps_on(id_)
    )


def _chips(meta: FrontMatter) -> str:
    """What a reader wants to know before the first sentence, each in a word or two."""
    said = [meta.kind, f"{meta.impact} impact", language_title(meta.scope), ", ".join(meta.regimes),
            ", ".join(meta.archs), meta.basis]  # fmt: skip
    shown = "".join(f'<li class="chip">{cell(text)}</li>' for text in said if text)
    return f'<ul class="chips">{shown}</ul>'


def _facts(meta: FrontMatter) -> str:
    rows = [
        ["Kind", f"{meta.kind}, {meta.impact} impact"],
        ["Language", language_title(meta.scope)],
        ["Regimes", ", ".join(meta.regimes)],
        ["Architectures", ", ".join(meta.archs)],
        ["Basis", f"{meta.basis}: {pattern_versions.BASIS_MEANING[meta.basis]}"],
        ["Worth reading when", "<br>".join(_trigger(t) for t in meta.triggers)],
        [
            "Moves",
            ", ".join(f"{_metric(name)} {direction}" for name, direction in meta.affects.items()),
        ],
        ["Since", meta.since.isoformat()],
    ]
    return table(["Pattern", f"`{meta.id}`"], (row for row in rows if row[1]))


def _metric(name: str) -> str:
    # Lint refuses other names; a page that was not linted shows them as words.
    return f"[`{name}`]({_METRICS}#{name})" if name in metrics.catalogue() else cell(name)


def _trigger(trigger: Trigger) -> str:
    rest = str(trigger).removeprefix(trigger.metric)
    return (
        _metric(trigger.metric) + span(rest)
        if trigger.metric in metrics.catalogue()
        else span(str(trigger))
    )


def span(text: str) -> str:
    """Inline code in a table; words where the text could end the code or start markup."""
    if re.search(r"[`|\n]|<[A-Za-z/!?]|&", text) or text != text.rstrip():
        return cell(text)
    return f"`{text}`"


def _relations(documents: Iterable[Document], link: Link) -> str:
    lines = []
    for meta in (document.pattern for document in documents):
        mark = "" if meta.scope == SHARED else f"{language_title(meta.scope)}, "
        lines.append(
            f"- [{label(meta)}]({link(_source(meta))}) ({mark}{meta.kind}, {meta.impact} impact): "
            f"{cell(meta.title)}"
        )
    return "\n".join(lines)
