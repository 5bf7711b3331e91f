"""Renders directives and citations of knowledge pages as figures and tables from records.

``{{ name arguments }}`` is replaced by a figure or a table; ``[3.2x](source:key)`` becomes a link
to the source of the page's evidence entry ``key``.
"""

from __future__ import annotations

import posixpath
import re
import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from mla_var3 import devices
from mla_var3.errors import KnowledgeError, UnknownNameError
from mla_var3.evidence import Record, address
from mla_var3.evidence.compare import same_work, time_text
from mla_var3.knowledge import analysis, evidence, markdown, metrics
from mla_var3.knowledge.evidence import Change, Link, ratio_text, repo_path
from mla_var3.knowledge.pages import ENTRY, Catalogue, Document
from mla_var3.knowledge.schema import Cited, ExternalEvidence, ObservationEvidence
from mla_var3.tables import cell
from mla_var3.workloads import workloads

#: After a figure that was seen and that no record holds.
UNRECORDED = " (unrecorded)"


@dataclass(frozen=True)
class Context:
    """What a directive may look at.

    Attributes:
        document: The text it stands in.
        catalogue: Pages and records.
        link: Address of a file of the checkout.
        before: The text in front of the directive.
    """

    document: Document
    catalogue: Catalogue
    link: Link
    before: str = ""


@dataclass(frozen=True)
class DirectiveSpec:
    """One directive.

    Attributes:
        name: Its name.
        usage: How it is written.
        description: What it becomes.
        least: Fewest arguments.
        most: Most arguments.
        block: Whether it becomes a block and must stand alone on its line.
        render: Makes the Markdown.
    """

    name: str
    usage: str
    description: str
    least: int
    most: int
    block: bool
    render: Callable[[Context, tuple[str, ...]], str]


def _evidence(context: Context, arguments: tuple[str, ...]) -> str:
    return evidence.render_evidence(context.document, context.catalogue, context.link)


def _measured(context: Context, arguments: tuple[str, ...]) -> str:
    headings = re.findall(r"^### +(.*?) *$", context.before, re.MULTILINE)
    match = ENTRY.fullmatch(headings[-1]) if headings else None
    if match is None or context.document.role != "devlog":
        raise KnowledgeError("{{ measured }} stands in no entry of a devlog")
    design = context.catalogue.design_of(context.document)
    if design is None:
        raise KnowledgeError(f"{context.document.name} is not the devlog of a design")
    return evidence.render_measured(design, match.group(1), context.catalogue, context.link)


def _record(context: Context, arguments: tuple[str, ...]) -> str:
    name, metric, *stage = arguments
    record = context.catalogue.record(name)
    reading = metrics.reading(record, metric, stage[0] if stage else None)
    return evidence.value_link(reading, record, name, context.catalogue, context.link)


def _ratio(context: Context, arguments: tuple[str, ...]) -> str:
    first, second, metric, *stage = arguments
    before, after = context.catalogue.pair(first, second)
    evidence.check_comparable(before, after, [metric])
    where = stage[0] if stage else None
    ratio = Change(
        metrics.reading(before, metric, where), metrics.reading(after, metric, where)
    ).ratio
    if ratio is None:
        raise KnowledgeError(f"{metric} of {first} and {second} has no ratio")
    stale = any(context.catalogue.is_stale(record) for record in (before, after))
    return f"[{ratio_text(ratio)}]({context.link(second)})" + (" (stale)" if stale else "")


def _takes(context: Context, arguments: tuple[str, ...]) -> str:
    """How much less or more time a record took than another of its run."""
    mine, other, metric, *stage = arguments
    before, after = context.catalogue.pair(other, mine)
    evidence.check_comparable(before, after, [metric])
    where = stage[0] if stage else None
    share = _shares([(before, after)], metric, where)[0]
    stale = any(context.catalogue.is_stale(record) for record in (before, after))
    return f"[{_said(share, metric)}]({context.link(mine)})" + (" (stale)" if stale else "")


def _said(share: float, metric: str) -> str:
    """A share in words, of a time as less or more of it."""
    return time_text(share) if metrics.metric(metric).origin == "time" else ratio_text(share)


def _shares(
    pairs: Sequence[tuple[Record, Record]], metric: str, stage: str | None = None
) -> list[float]:
    """The second's value over the first's."""
    found = [
        Change(metrics.reading(after, metric, stage), metrics.reading(before, metric, stage)).ratio
        for before, after in pairs
    ]
    if any(share is None for share in found):
        raise KnowledgeError(f"{metric} of these records has no ratio")
    return [share for share in found if share is not None]


@dataclass(frozen=True)
class Beside:
    """Two versions at all problems at which one run timed both.

    Attributes:
        first: The version that is told of, as ``PACKAGE/WORKLOAD/DESIGN/VERSION``.
        second: What it is compared with.
        run: The run.
        pairs: Records of the second and of the first, by problem.
    """

    first: str
    second: str
    run: str
    pairs: tuple[tuple[Record, Record], ...]

    @property
    def address(self) -> str:
        """What a stated mean links to: where no page lists all, the first record."""
        return f"{address(self.pairs[0][1])}#{self.run}-beside-{self.second}"

    def mean(self, metric: str) -> float:
        """Geometric mean of the first's value over the second's."""
        return statistics.geometric_mean(_shares(self.pairs, metric))


def beside(catalogue: Catalogue, first: str, second: str, run: str) -> Beside:
    """Two versions in a run.

    Raises:
        KnowledgeError: It holds no problem of both.
    """
    mine, other = (_of_run(catalogue, name, run) for name in (first, second))
    pairs = tuple((other[at], record) for at, record in mine.items() if at in other)
    if not pairs:
        raise KnowledgeError(f"run {run} holds no problem of both {first} and {second}")
    return Beside(first, second, run, pairs)


def _mean(context: Context, arguments: tuple[str, ...]) -> str:
    """Geometric mean over the problems at which a run timed both versions."""
    *named, metric = arguments
    found = beside(context.catalogue, *named)
    stale = any(context.catalogue.is_stale(record) for pair in found.pairs for record in pair)
    said = f"[{_said(found.mean(metric), metric)}]({context.link(found.address)})"
    return f"{said} over {len(found.pairs)} problems" + (" (stale)" if stale else "")


def _of_run(catalogue: Catalogue, name: str, run: str) -> dict[Hashable, Record]:
    """Timed records of a version in a run, by what two must share to compare."""
    wanted = tuple(name.split("/"))
    return {
        same_work(workloads()[record.kernel.layer].compared)(record): record
        for record in catalogue.index.records
        if record.run == run and _named(record) == wanted and record.is_timed
    }


def _named(record: Record) -> tuple[str, ...]:
    kernel = record.kernel
    return kernel.package, kernel.layer, kernel.design, kernel.version


def _device(context: Context, arguments: tuple[str, ...]) -> str:
    key, metric = arguments
    figure = devices.load(key).figure(metric)
    shown = f"{figure.normalised:,g} {figure.normalised_unit}"
    return f"[{cell(shown)}]({context.link(f'knowledge/devices/{key}.toml')})"


def _analysis(context: Context, arguments: tuple[str, ...]) -> str:
    workload, name, *rest = arguments
    return analysis.find(workload).figure(name, *rest)


DIRECTIVES = {
    spec.name: spec
    for spec in (
        DirectiveSpec(
            "evidence", "{{ evidence }}", "the tables of the page's evidence",
            0, 0, True, _evidence,
        ),
        DirectiveSpec(
            "measured", "{{ measured }}",
            "in a devlog entry: the version's records against the version before",
            0, 0, True, _measured,
        ),
        DirectiveSpec(
            "record", "{{ record results/… METRIC [STAGE] }}",
            "one value of a record with its unit, linked to the record",
            2, 3, False, _record,
        ),
        DirectiveSpec(
            "ratio", "{{ ratio BEFORE AFTER METRIC [STAGE] }}",
            "the value before over the value after", 3, 4, False, _ratio,
        ),
        DirectiveSpec(
            "takes", "{{ takes AFTER BEFORE METRIC [STAGE] }}",
            "by how much less or more time AFTER took than BEFORE", 3, 4, False, _takes,
        ),
        DirectiveSpec(
            "mean", "{{ mean PACKAGE/WORKLOAD/DESIGN/VERSION PACKAGE/… RUN METRIC }}",
            "by how much less or more time the first version takes than the second, as the "
            "geometric mean over all problems at which a run timed both, linked to all of them",
            4, 4, False, _mean,
        ),
        DirectiveSpec(
            "device", "{{ device KEY METRIC }}",
            "a figure of a file in knowledge/devices, linked to the file", 2, 2, False, _device,
        ),
        DirectiveSpec(
            "analysis", "{{ analysis WORKLOAD NAME [DEVICE …] }}",
            "a figure, formula or table computed by the cost analysis of a workload",
            2, 6, False, _analysis,
        ),
    )
}  # fmt: skip


def render_directive(context: Context, name: str, arguments: tuple[str, ...]) -> str:
    """The Markdown of one directive.

    Raises:
        UnknownNameError: No such directive, metric, stage, device or figure.
        KnowledgeError: Wrong arguments, or a record does not state what is asked.
        RecordError: A record is missing or not sound.
        DeviceFigureError: The device's figure is unknown.
    """
    if name not in DIRECTIVES:
        raise UnknownNameError("directive", name, list(DIRECTIVES))
    spec = DIRECTIVES[name]
    if not spec.least <= len(arguments) <= spec.most:
        raise KnowledgeError(f"{name} takes other arguments: {spec.usage}")
    return spec.render(context, arguments)


def is_block(name: str, arguments: tuple[str, ...]) -> bool:
    """Whether a directive becomes a table, which must stand alone on its line."""
    if name == "analysis":
        found = analysis.analyses().get(arguments[0]) if len(arguments) > 1 else None
        return found is not None and arguments[1] in found.TABLES
    return name in DIRECTIVES and DIRECTIVES[name].block


def cited(document: Document, key: str) -> Cited | None:
    """The evidence entry that a citation refers to."""
    for item in document.meta.evidence if document.meta else ():
        if isinstance(item, Cited) and item.key == key:
            return item
    return None


Override = Callable[[str, tuple[str, ...]], str | None]


def no_override(name: str, arguments: tuple[str, ...]) -> None:
    """The default ``Override``: every directive is rendered as Markdown."""


def render(
    document: Document,
    catalogue: Catalogue,
    link: Link = repo_path,
    override: Override = no_override,
) -> str:
    """The body as Markdown with directives, citations and links to files resolved.

    Raw HTML outside code is escaped, so that even a page that lint would refuse runs no script.

    Args:
        document: A page, text or devlog.
        catalogue: Pages and records.
        link: Address of a file of the checkout, given by its path with an optional ``#anchor``.
        override: Gives another text for a directive (a chart for a table, say), or None.

    Raises:
        HyperMlaError: A directive or citation cannot be resolved; lint names the line.
    """
    body = markdown.neutralise(document.body)
    prose = markdown.blank(body, markdown.code_regions(body))
    edits: list[tuple[int, int, str]] = []
    for item in markdown.directives(prose):
        context = Context(document, catalogue, link, body[: item.start])
        text = override(item.name, item.arguments)
        if text is None:
            text = render_directive(context, item.name, item.arguments)
        edits.append((item.start, item.end, text))
    edits += (
        (c.start, c.end, _citation(document, c, catalogue)) for c in markdown.citations(prose)
    )
    # Words about code lead to it where the code is shown, which is the page of a version.
    edits += ((*m.span(), body[slice(*m.span(1))]) for m in markdown.CODE_LINK.finditer(prose))
    edits += (
        (start, end, link(resolve(document.name, target)))
        for start, end, target in markdown.relative_targets(prose)
    )
    for start, end, text in sorted(edits, reverse=True):
        body = body[:start] + text + body[end:]
    return body


def resolve(name: str, target: str) -> str:
    """Path from the top of the checkout that a relative link in the file ``name`` leads to."""
    path, mark, anchor = target.partition("#")
    if not path:
        return f"{name}{mark}{anchor}"
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
    return f"{joined}{mark}{anchor}"


def _citation(document: Document, citation: markdown.Citation, catalogue: Catalogue) -> str:
    item = cited(document, citation.key)
    if item is None:
        raise KnowledgeError(f"{document.name}: no evidence entry has the key {citation.key!r}")
    anchor = f"#{_evidence_anchor(document)}"
    target = item.address if isinstance(item, ExternalEvidence) else anchor
    title = f"{evidence.source_of(item)}: {evidence.quoted_words(item, catalogue)}"
    title = " ".join(title.split()).replace("\\", "").replace('"', "'")
    for mark, entity in (("<", "&lt;"), ("|", "&#124;"), ("`", "&#96;"), ("{", "&#123;")):
        title = title.replace(mark, entity)
    mark = UNRECORDED if isinstance(item, ObservationEvidence) else ""
    return f'[{citation.label}]({target} "{title}"){mark}'


def _evidence_anchor(document: Document) -> str:
    """Anchor of the section that shows the evidence table."""
    holders = [s.title for s in document.sections if "{{ evidence }}" in s.text]
    return markdown.slug(holders[-1]) if holders else ""
