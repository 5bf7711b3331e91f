"""Evidence of knowledge pages: looks values up in records and renders them as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from textwrap import dedent

from mla_var3.emulator import seeded
from mla_var3.emulator.seeded import Bug, Outcome
from mla_var3.errors import EmulatorError, KnowledgeError
from mla_var3.evidence import Passed, Record, StaticFacts
from mla_var3.evidence.compare import said
from mla_var3.knowledge import cited_kernels, metrics
from mla_var3.knowledge.metrics import Metric, Reading, Value
from mla_var3.knowledge.pages import Catalogue, Design, Document
from mla_var3.knowledge.schema import (
    Cited,
    CompiledEvidence,
    Direction,
    ExternalEvidence,
    ObservationEvidence,
    PairEvidence,
    RecordEvidence,
    SeededEvidence,
    TestedEvidence,
)
from mla_var3.tables import cell, table
from mla_var3.workloads import workloads

#: Address of a file of the checkout (path from its top, maybe with ``#anchor``) in the output.
Link = Callable[[str], str]


def repo_path(path: str) -> str:
    """The default ``Link``: the path itself."""
    return path


@dataclass(frozen=True)
class Change:
    """How one metric moves from one record to another.

    Attributes:
        before: Reading of the first record.
        after: Reading of the second record.
    """

    before: Reading
    after: Reading

    @property
    def ratio(self) -> float | None:
        """Before over after; None for text and where a value is 0."""
        old, new = number(self.before.value), number(self.after.value)
        return old / new if old and new else None

    @property
    def direction(self) -> Direction | None:
        """Where the value moved; None when it did not or has no order."""
        old, new = number(self.before.value), number(self.after.value)
        if old is None or new is None or old == new:
            return None
        return "up" if new > old else "down"


def number(value: Value) -> float | None:
    """The value where it is a number."""
    return None if isinstance(value, (bool, str)) else float(value)


def ratio_text(ratio: float | None) -> str:
    """A ratio to three digits, as ``4.75x``; a dash where there is none."""
    return "–" if ratio is None else f"{float(f'{ratio:.3g}'):g}x"  # noqa: RUF001


def change_text(metric: Metric, ratio: float | None) -> str:
    """What a ratio of before over after says, as people read it: ``1.8x faster`` of a time."""
    if ratio is None or metric.origin != "time" or metric.better != "lower":
        return ratio_text(ratio)
    return said(ratio, 1.0)


def compare(evidence: PairEvidence, catalogue: Catalogue) -> list[Change]:
    """The metrics of a pair of records.

    Raises:
        KnowledgeError: A record does not state a metric, or the records cannot be compared.
        RecordError: A record is missing or not sound.
        UnknownNameError: No such metric or stage.
    """
    before, after = catalogue.pair(evidence.before, evidence.after)
    check_comparable(before, after, evidence.metric)
    return [
        Change(
            metrics.reading(before, name, evidence.stage),
            metrics.reading(after, name, evidence.stage),
        )
        for name in evidence.metric
    ]


def check_comparable(before: Record, after: Record, names: Iterable[str]) -> None:
    """Raise KnowledgeError unless the records differ in what is compared alone.

    Args:
        before: A record.
        after: Another one.
        names: The metrics compared; times compare within one run only.
    """
    if before.key == after.key:
        raise KnowledgeError(f"before and after are the same record {before.key}")
    for what, one, other in (
        ("workload", before.kernel.layer, after.kernel.layer),
        ("target", before.target, after.target),
        ("mode", before.mode, after.mode),
        ("toolchain", _tools(before, after), _tools(after, before)),
    ):
        if one != other:
            raise KnowledgeError(f"before and after differ in {what}: {one} and {other}")
    ours, theirs = before.problem, after.problem
    if unequal := [name for name in _shared(before) if ours.get(name) != theirs.get(name)]:
        raise KnowledgeError(f"before and after differ in the problem: {', '.join(unequal)}")
    if any(map(is_timed, names)) and not same_run(before, after):
        raise KnowledgeError("before and after were timed in two runs; times compare within one")


def _tools(record: Record, other: Record) -> dict[str, str]:
    """A record's toolchain; against another language what both use, since each has its own."""
    if record.kernel.language == other.kernel.language:
        return dict(record.toolchain)
    return {name: value for name, value in record.toolchain.items() if name in other.toolchain}


def is_timed(name: str) -> bool:
    """Whether a metric follows from a measured time."""
    found = metrics.catalogue().get(name)
    return found is not None and (found.origin == "time" or name == "bound_fraction")


def _shared(record: Record) -> list[str]:
    """The axes that all designs of a record's workload share; all where it is not known."""
    workload = workloads().get(record.kernel.layer)
    return list(record.problem) if workload is None else [*workload.axes, *workload.compared]


def same_run(before: Record, after: Record) -> bool:
    """Whether one process timed both, so that power and clocks were alike."""
    return before.run == after.run


def readings(evidence: RecordEvidence, catalogue: Catalogue) -> list[Reading]:
    """The metrics of one record; raises like ``compare``."""
    record = catalogue.record(evidence.record)
    return [metrics.reading(record, name, evidence.stage) for name in evidence.metric]


def render_evidence(page: Document, catalogue: Catalogue, link: Link = repo_path) -> str:
    """The evidence of a page as Markdown tables.

    Args:
        page: A pattern page, text or devlog with front matter.
        catalogue: Where records are read from.
        link: Address of a file of the checkout.

    Returns:
        A table of comparisons, one of single records and one of quoted sources, each only when it
        has rows, then the compiles and the reports of seeded bugs; empty text when the page has no
        evidence.

    Raises:
        KnowledgeError: A record does not state what the page says, or cannot be compared.
        RecordError: A record is missing or not sound.
    """
    pairs: list[list[str]] = []
    single: list[list[str]] = []
    quoted: list[list[str]] = []
    reports: list[str] = []
    for item in page.meta.evidence if page.meta else ():
        if isinstance(item, PairEvidence):
            pairs += _pair_rows(item, catalogue, link)
        elif isinstance(item, RecordEvidence):
            single += _record_rows(item, catalogue, link)
        elif isinstance(item, ExternalEvidence):
            source = f"[{cell(item.external)}]({item.address})"
            quoted.append(["published", source, cell(item.quoted)])
        elif isinstance(item, ObservationEvidence):
            quoted.append(["observed, unrecorded", cell(item.observed), cell(item.quoted)])
        elif isinstance(item, TestedEvidence):
            source = f"[{cell(item.tested.rpartition('::')[2])}]({link(test_file(item))})"
            quoted.append(["tested", source, cell(item.quoted)])
        elif isinstance(item, CompiledEvidence):
            reports.append(_compiled_table(item, catalogue, link))
        elif isinstance(item, SeededEvidence):
            reports.append(_seeded_report(*seeded_bug(item, catalogue), link))
    tables = [
        table(["Metric", "Before", "After", "Before over after", "On", "Note"], pairs),
        table(["Metric", "Value", "Of", "On", "Note"], single),
        table(["Kind", "Source", "Quoted"], quoted),
        *reports,
    ]
    return "\n\n".join(text for text in tables if text)


def test_file(item: TestedEvidence) -> str:
    """The file of the test that an entry names."""
    return item.tested.partition("::")[0]


def compiled_cases(item: CompiledEvidence, catalogue: Catalogue) -> dict[str, StaticFacts]:
    """The facts of the cases that an entry names, in its order.

    Raises:
        KnowledgeError: The list was not compiled, or has no such case.
        UnknownNameError: There is no such list.
    """
    listed = cited_kernels.listed(item.compiled, catalogue.root)
    found = cited_kernels.table(item.compiled, catalogue.root)
    return {case: found.facts(case) for case in item.cases or listed.cases}


def quoted_words(item: Cited, catalogue: Catalogue) -> str:
    """The words that a citation of an entry may take its figures from.

    Raises:
        KnowledgeError: See ``compiled_cases``.
    """
    if not isinstance(item, CompiledEvidence):
        return item.quoted
    return "; ".join(
        f"{case}: {', '.join([cited_kernels.words(facts, item.count), *facts.unmet])}"
        for case, facts in compiled_cases(item, catalogue).items()
    )


def source_of(item: Cited) -> str:
    """Where the words of an entry come from, in words."""
    if isinstance(item, ExternalEvidence):
        return item.external
    if isinstance(item, TestedEvidence):
        return item.tested
    return item.compiled if isinstance(item, CompiledEvidence) else item.observed


def _compiled_table(item: CompiledEvidence, catalogue: Catalogue, link: Link) -> str:
    """What the compiles of an entry gave, one row per case."""
    listed = cited_kernels.listed(item.compiled, catalogue.root)
    cases = compiled_cases(item, catalogue)
    path = f"{cited_kernels.TABLES}/{item.compiled}.json"
    tools = " and ".join(
        f"{name} {version}" for name, version in _tools_of(cases.values()).items() if version
    )
    head = ["Compile", "Target", "Registers", "Stack", "Shared memory", "Instructions"]
    head += ["Tensor cores", "TMA loads", *item.count, "Barriers", "The compiler says"]
    said = f"{cell(listed.title)}, compiled by {cell(tools)} ([cases]({link(_list_of(item))}), "
    note = f" {cell(item.note)}." if item.note else ""
    rows = (_compiled_row(item, case, facts) for case, facts in cases.items())
    return f"{said}[facts]({link(path)})).{note}\n\n{table(head, rows)}"


def _list_of(item: CompiledEvidence) -> str:
    return f"{cited_kernels.LISTS}/{item.compiled}.toml"


def _tools_of(facts: Iterable[StaticFacts]) -> dict[str, str]:
    """The front end and the compiler; the facts name the other tools too."""
    return dict(pair for found in facts for pair in list(found.toolchain.items())[:2])


def _compiled_row(item: CompiledEvidence, case: str, facts: StaticFacts) -> list[str]:
    """A case as a row; of a compile that was refused its reason alone."""
    if facts.error is not None:
        blank = [""] * (7 + len(item.count))
        return [cell(case), cell(facts.arch), *blank, cell(facts.error)]
    numbers = (facts.registers, f"{facts.stack_bytes} B", f"{facts.shared_bytes} B")
    counted = (facts.instruction_mix.get(name, 0) for name in item.count)
    return [
        cell(case),
        cell(facts.arch),
        *map(str, numbers),
        str(facts.instructions),
        cell(cited_kernels.tensor_cores(facts)),
        str(facts.tma_loads),
        *map(str, counted),
        cell(", ".join(facts.synchronization)),
        cell("; ".join(facts.unmet) if item.refused else ""),
    ]


def seeded_bug(item: SeededEvidence, catalogue: Catalogue) -> tuple[Bug, Outcome]:
    """The edit that a page names, and what the emulator said of it when it was last run.

    Raises:
        KnowledgeError: No such edit is listed, it was not run, or nothing was reported.
    """
    kernel, _, name = item.seeded.partition("/")
    try:
        subjects = seeded.read(catalogue.root / seeded.BUGS)
        outcomes = {o.key: o for o in seeded.table(catalogue.root / seeded.TABLE).outcomes}
    except EmulatorError as error:
        raise KnowledgeError(str(error)) from None
    bug = subjects[kernel].bugs.get(name) if kernel in subjects else None
    outcome = outcomes.get(item.seeded)
    if bug is None:
        raise KnowledgeError(f"{seeded.BUGS} lists no bug {item.seeded}")
    if outcome is None or not outcome.ok or outcome.report is None:
        raise KnowledgeError(f"{seeded.TABLE} has no report of {item.seeded}")
    return bug, outcome


def _seeded_report(bug: Bug, outcome: Outcome, link: Link) -> str:
    """The edit as a diff, and the report as it was printed."""
    gone = [f"-{line}" for line in dedent(bug.find.strip("\n")).splitlines()]
    put = [f"+{line}" for line in dedent(bug.put.strip("\n")).splitlines()]
    models = "both memory models" if len(outcome.expected) > 1 else "the strict memory model"
    where = f"[{cell(outcome.source)}]({link(outcome.source)})"
    return "\n".join(
        [
            f"The mistake in {where}, line {outcome.line}: {cell(bug.why)}.",
            "",
            fenced("diff", "\n".join([*gone, *put])),
            "",
            f"What the emulator prints, in {models}. {VALUES[outcome.values]}",
            "",
            fenced("text", outcome.report.text if outcome.report else ""),
        ]
    )


#: What a reader should know of the outputs of a kernel with a bug.
VALUES = {
    "right": "The outputs are right, so that no comparison of values finds it.",
    "wrong": "The outputs are wrong in this run.",
    "none": "The kernel has no end.",
}


def fenced(language: str, text: str) -> str:
    """Text as a block of code, whatever stands in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def value_link(
    reading: Reading, record: Record, name: str, catalogue: Catalogue, link: Link
) -> str:
    """A value with its unit that leads to its record, marked when the record is stale."""
    stale = " (stale)" if catalogue.is_stale(record) else ""
    return f"[{cell(reading.metric.text(reading.value))}]({link(name)}){stale}"


def _where(record: Record) -> str:
    return f"{cell(record.target.removeprefix('static/'))}, {cell(record.slug)}"


def _metric_cell(metric: Metric, stage: str | None) -> str:
    return f"`{metric.name}`" + (f" of {cell(stage)}" if stage else "")


def _pair_rows(item: PairEvidence, catalogue: Catalogue, link: Link) -> list[list[str]]:
    before, after = catalogue.pair(item.before, item.after)
    return [
        [
            _metric_cell(pair.after.metric, item.stage),
            f"{value_link(pair.before, before, item.before, catalogue, link)} ({_version(before)})",
            f"{value_link(pair.after, after, item.after, catalogue, link)} ({_version(after)})",
            change_text(pair.after.metric, pair.ratio),
            _where(after),
            cell(item.note or ""),
        ]
        for pair in compare(item, catalogue)
    ]


def _version(record: Record) -> str:
    kernel, workload = record.kernel, workloads().get(record.kernel.layer)
    peers = workload.peers if workload else {}
    return f"{cell(peers.get(kernel.design, kernel.design))} {kernel.version}"


def _record_rows(item: RecordEvidence, catalogue: Catalogue, link: Link) -> list[list[str]]:
    record = catalogue.record(item.record)
    return [
        [
            _metric_cell(reading.metric, item.stage),
            value_link(reading, record, item.record, catalogue, link),
            _version(record),
            _where(record),
            cell(item.note or ""),
        ]
        for reading in readings(item, catalogue)
    ]


#: What a devlog entry shows of each record: facts that a version is judged by.
DEVLOG_METRICS = (
    "total_us",
    "duration_us",
    "registers",
    "spill_instructions",
    "stack_bytes",
    "mma_path",
    "occupancy",
    "loaded_bytes",
)


def render_measured(
    design: Design, version: str, catalogue: Catalogue, link: Link = repo_path
) -> str:
    """What the records say about a version, against the version before it.

    Args:
        design: The design.
        version: ``v0``, ``v1``, ...
        catalogue: Where records are read from.
        link: Address of a file of the checkout.

    Returns:
        A Markdown table, or a sentence when there is no record yet.
    """
    index = design.versions.index(version) if version in design.versions else 0
    previous = design.versions[index - 1] if index else None
    rows: list[list[str]] = []
    for name, record in _records_of(design, version, catalogue):
        old_name = name.replace(f"/{version}/", f"/{previous}/")
        if previous is not None and old_name in catalogue.records:
            old, new = catalogue.pair(old_name, name)
            rows += _measured_rows(name, new, old_name, old, catalogue, link)
        else:
            rows += _measured_rows(name, record, old_name, None, catalogue, link)
    if not rows:
        return f"No record of {cell(design.name)} {version} is committed yet."
    return table(["Metric", f"{previous or 'before'}", version, "Before over after", "On"], rows)


def _records_of(design: Design, version: str, catalogue: Catalogue) -> Iterable[tuple[str, Record]]:
    place = f"{design.devlog.removeprefix('kernels').removesuffix('/devlog.md')}/{version}/"
    for name, record in catalogue.records.items():
        if place in name and isinstance(record.outcome, Passed):
            yield name, record


def _measured_rows(
    name: str,
    record: Record,
    old_name: str,
    old: Record | None,
    catalogue: Catalogue,
    link: Link,
) -> list[list[str]]:
    rows = []
    for metric in (metrics.metric(m) for m in DEVLOG_METRICS):
        earlier = {r.stage: r for r in metrics.readings_of(old, metric)} if old else {}
        for reading in metrics.readings_of(record, metric):
            before = earlier.get(reading.stage)
            comparable = not is_timed(metric.name) or (old is not None and same_run(old, record))
            ratio = Change(before, reading).ratio if before and comparable else None
            rows.append(
                [
                    _metric_cell(metric, reading.stage),
                    value_link(before, old, old_name, catalogue, link) if before and old else "",
                    value_link(reading, record, name, catalogue, link),
                    ("other run" if not comparable else change_text(metric, ratio))
                    if before
                    else "",
                    _where(record),
                ]
            )
    return rows
