"""Lint checks of a page's claims: metrics, triggers, versions, and records cited as evidence."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from mla_var3 import evidence
from mla_var3.errors import HyperMlaError, KnowledgeError, RecordError, UnknownNameError
from mla_var3.evidence import Record, is_address
from mla_var3.knowledge import cited_kernels, metrics
from mla_var3.knowledge.checks.base import Check, DocumentCheck, Finding, Problem, entries
from mla_var3.knowledge.evidence import (
    check_comparable,
    compare,
    compiled_cases,
    seeded_bug,
    test_file,
)
from mla_var3.knowledge.markdown import relative_targets
from mla_var3.knowledge.pages import Catalogue, Document
from mla_var3.knowledge.schema import (
    CompiledEvidence,
    Condition,
    ExternalEvidence,
    ObservationEvidence,
    PairEvidence,
    RecordedEvidence,
    SeededEvidence,
    TestedEvidence,
)
from mla_var3.paths import relative


class MetricUnknown(DocumentCheck):
    """Every metric that front matter names is in the metrics catalogue."""

    id = "metric-unknown"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for name, line in _named_metrics(document):
            if name not in metrics.catalogue():
                sentence = str(UnknownNameError("metric", name, list(metrics.catalogue())))
                yield line, re.sub(r" \(known: [^)]*\)", "", sentence)


def _named_metrics(document: Document) -> Iterator[tuple[str, int]]:
    for line, item in entries(document, RecordedEvidence, "metric"):
        for name in item.metric:
            yield name, line
    if document.role == "pattern":
        for name in document.pattern.affects:
            yield name, document.line_of("affects", name)
        for line, condition in _conditions(document):
            yield condition.metric, line


def _conditions(document: Document) -> Iterator[tuple[int, Condition]]:
    for index, trigger in enumerate(document.pattern.triggers):
        yield document.line_of("triggers", index), trigger
        for inner, condition in enumerate(trigger.with_):
            yield document.line_of("triggers", index, "with", inner), condition


class TriggerComparison(DocumentCheck):
    """A trigger compares a metric with a value of its type; text and flags know == and != only."""

    id = "trigger-comparison"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        types = {"number": (int, float), "text": (str,), "flag": (bool,)}
        for line, condition in _conditions(document):
            metric = metrics.catalogue().get(condition.metric)
            if metric is None:
                continue  # metric-unknown
            is_flag = isinstance(condition.value, bool)
            if not isinstance(condition.value, types[metric.type]) or (
                is_flag and metric.type != "flag"
            ):
                yield line, f"{metric.name} is a {metric.type}, {condition.value!r} is not"
            elif metric.type != "number" and condition.comparison not in ("==", "!="):
                what = f"{metric.name} is a {metric.type}"
                yield line, f"{what}, which {condition.comparison} cannot compare"


class TriggerMissing(DocumentCheck):
    """A shared pattern has a trigger, so that a record can lead to it."""

    id = "trigger-missing"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        if document.pattern.scope == "shared" and not document.pattern.triggers:
            yield document.line_of("triggers"), "a shared pattern needs at least one trigger"


class IdUnknown(DocumentCheck):
    """Every id under `interacts` is that of another page."""

    id = "id-unknown"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for index, id_ in enumerate(document.pattern.interacts):
            line = document.line_of("interacts", index)
            if id_ == document.pattern.id:
                yield line, "a page does not interact with itself"
            elif id_ not in catalogue.by_id:
                yield line, f"no page has the id {id_!r}"


class InteractionUnexplained(DocumentCheck):
    """Every page under `interacts` is linked in the section Interactions, which says how."""

    id = "interaction-unexplained"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        text = document.section("Interactions")
        for index, id_ in enumerate(document.pattern.interacts):
            if f"{id_}.md" not in text:
                line = document.line_of("interacts", index)
                yield line, f"the section Interactions does not link {id_!r}"


class VersionUnknown(DocumentCheck):
    """Every version under `used_by` and `violated_by` exists."""

    id = "version-unknown"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for key in ("used_by", "violated_by"):
            for index, name in enumerate(getattr(document.pattern, key)):
                if catalogue.version(name) is None:
                    yield document.line_of(key, index), f"there is no version {name!r}"


class VersionBothWays(DocumentCheck):
    """No version both uses and violates a pattern."""

    id = "version-both-ways"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        used = [catalogue.version(name) for name in document.pattern.used_by]
        for index, name in enumerate(document.pattern.violated_by):
            found = catalogue.version(name)
            if found is not None and found in used:
                line = document.line_of("violated_by", index)
                yield line, f"{name!r} stands under used_by and under violated_by"


class VersionUnlisted(DocumentCheck):
    """An optimization that a devlog entry links under `What changed` names the version.

    Under `used_by`, or under `violated_by` where the change takes it out. What an entry says
    elsewhere may be about other versions, and an anti-pattern may be linked because it is avoided.
    """

    id = "version-unlisted"
    roles = ("devlog",)

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        design = catalogue.design_of(document)
        for entry in document.entries if design else ():
            assert design is not None
            name = f"{design.name} {entry.version}"
            own = (design, entry.version)
            for section in entry.sections:
                if section.title != "What changed":
                    continue
                for start, _, target in relative_targets(section.text):
                    page = catalogue.by_id.get(PurePosixPath(target.partition("#")[0]).stem)
                    if page is None or page.pattern.kind != "optimization":
                        continue
                    named = (*page.pattern.used_by, *page.pattern.violated_by)
                    if own not in map(catalogue.version, named):
                        line = section.line + 1 + section.text.count("\n", 0, start)
                        yield line, f"{page.name} does not name {name} under used_by"


class EvidenceMissing(DocumentCheck):
    """A pattern page has evidence."""

    id = "evidence-missing"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        if not document.pattern.evidence:
            yield document.line_of("evidence"), "the page claims something and shows no evidence"


def _named_records(document: Document) -> Iterator[tuple[int, str, RecordedEvidence]]:
    for key in ("record", "before", "after"):
        for line, item in entries(document, RecordedEvidence, key):
            if name := getattr(item, key, None):
                yield line, name, item


def _readable(catalogue: Catalogue, name: str) -> Record | None:
    try:
        return catalogue.record(name)
    except (KnowledgeError, RecordError):
        return None


class EvidencePath(DocumentCheck):
    """A record is named by its address, as ``records list`` prints it."""

    id = "evidence-path"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, name, _ in _named_records(document):
            if not is_address(name):
                yield line, f"{name} is no address of a record"


class EvidenceRecordMissing(DocumentCheck):
    """A record that is named as evidence exists and is a sound record."""

    id = "evidence-record-missing"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, name, _ in _named_records(document):
            if is_address(name) and _readable(catalogue, name) is None:
                yield line, f"record {name} does not exist"
            elif _readable(catalogue, name) is None:
                yield line, f"{name} is not a sound record"


class EvidenceSeeded(DocumentCheck):
    """A seeded bug that is named as evidence is listed, was run, and was reported."""

    id = "evidence-seeded"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, item in entries(document, SeededEvidence):
            try:
                seeded_bug(item, catalogue)
            except KnowledgeError as error:
                yield line, str(error)


class EvidenceCompiled(DocumentCheck):
    """A list of compiles that is named as evidence has the cases, and each was compiled."""

    id = "evidence-compiled"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, item in entries(document, CompiledEvidence, "compiled"):
            try:
                compiled_cases(item, catalogue)
            except HyperMlaError as error:
                yield line, str(error)


class EvidenceCompiledStale(DocumentCheck):
    """Compiles that are named as evidence were made from today's list and sources."""

    id = "evidence-compiled-stale"
    severity = "warning"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, item in entries(document, CompiledEvidence, "compiled"):
            try:
                found = cited_kernels.table(item.compiled, catalogue.root)
            except KnowledgeError:
                continue  # evidence-compiled
            if sources := cited_kernels.changed(found, catalogue.root):
                yield line, f"{', '.join(sources)} changed since {item.compiled} was compiled"


class EvidenceTested(DocumentCheck):
    """A test that is named as evidence exists."""

    id = "evidence-tested"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, item in entries(document, TestedEvidence, "tested"):
            path, name = catalogue.root / test_file(item), item.tested.rpartition("::")[2]
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            if f"\ndef {name}(" not in text:
                yield line, f"no test {item.tested}"


class EvidenceMetric(DocumentCheck):
    """The record states the metric, and for one stage when a stage is meant."""

    id = "evidence-metric"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, name, item in _named_records(document):
            if (record := _readable(catalogue, name)) is None:
                continue  # evidence-record-missing
            for metric in item.metric:
                try:
                    if metric in metrics.catalogue():
                        metrics.reading(record, metric, item.stage)
                except HyperMlaError as error:
                    yield line, str(error)


class EvidencePair(DocumentCheck):
    """The records of a pair differ in the version alone.

    Workload, target, mode and toolchain are the same, and so are the axes that the workload's
    designs share; what a design chooses for itself may differ. Times are of one run.
    """

    id = "evidence-pair"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, item in entries(document, PairEvidence):
            if any(_readable(catalogue, name) is None for name in (item.before, item.after)):
                continue  # evidence-record-missing
            try:
                check_comparable(*catalogue.pair(item.before, item.after), item.metric)
            except KnowledgeError as error:
                yield line, str(error)


class EvidenceDirection(DocumentCheck):
    """A pair of records moves each metric as `affects` says.

    For an optimization `after` is with it; for an anti-pattern `after` is mended, so the metric
    moves against what `affects` says of falling into it.
    """

    id = "evidence-direction"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        meta = document.pattern
        for line, item in entries(document, PairEvidence):
            try:
                pairs = compare(item, catalogue)
            except HyperMlaError:
                continue  # The other checks of evidence say why.
            for pair in pairs:
                name = pair.after.metric.name
                wanted = meta.affects.get(name)
                if wanted and meta.kind == "anti-pattern":
                    wanted = "down" if wanted == "up" else "up"
                if wanted and pair.direction not in (wanted, None):
                    yield line, f"{name} goes {pair.direction}, affects wants it to go {wanted}"


class EvidenceBasis(DocumentCheck):
    """The basis that a page states is borne out by its evidence.

    `measured` needs a record with times or an observation, `static` a record of a compile or of a
    run on the CPU, a list of compiles, a test, a seeded bug or an observation, `external` an
    external source,
    `single-observation` an observation or a record with times; `source-semantics` needs an external
    source or a version under `used_by` or `violated_by` whose source shows it.
    """

    id = "evidence-basis"
    roles = ("pattern",)
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        meta = document.pattern
        loaded = [_readable(catalogue, name) for _, name, _ in _named_records(document)]
        if None in loaded:
            return  # evidence-record-missing
        found = [record for record in loaded if record is not None]
        external = any(isinstance(item, ExternalEvidence) for item in meta.evidence)
        observed = sum(isinstance(item, ObservationEvidence) for item in meta.evidence)
        here = (SeededEvidence, CompiledEvidence, TestedEvidence)
        emulated = any(isinstance(item, here) for item in meta.evidence)
        timed = sum(record.device is not None for record in found)
        held = {
            "measured": bool(observed or timed),
            "static": bool(observed or emulated) or any(r.device is None for r in found),
            "external": external,
            "single-observation": observed + timed >= 1,
            "source-semantics": external or bool(meta.used_by or meta.violated_by),
        }
        if not held[meta.basis]:
            yield document.line_of("basis"), f"no evidence bears out the basis {meta.basis!r}"


class EvidenceStale(DocumentCheck):
    """A record that is named as evidence is of the code that today's sources compile to."""

    id = "evidence-stale"
    severity = "warning"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, name, _ in _named_records(document):
            record = _readable(catalogue, name)
            if record is not None and catalogue.is_stale(record):
                kernel = f"{record.kernel.design} {record.kernel.version}"
                yield line, f"the code of {kernel} changed since {name} was made"


class RecordUnsound(Check):
    """Every file below results/ holds sound records and lies where its own fields say."""

    id = "record-unsound"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Files that hold no records, or lie in another file's place."""
        for path in catalogue.record_files():
            name = relative(path, catalogue.root)
            try:
                made = evidence.read(path)
            except RecordError as error:
                sentence = str(error).replace(f"{catalogue.root}/", "")
                yield self.finding(name, (1, " ".join(sentence.split())))
                continue
            wanted = f"results/{made.folder}"
            if posixpath.dirname(name) != wanted:
                yield self.finding(name, (1, f"the file says that it belongs in {wanted}"))


class RecordStale(Check):
    """The newest record of each address is of the code that today's sources compile to."""

    id = "record-stale"
    severity = "warning"

    def run(self, catalogue: Catalogue) -> Iterator[Finding]:
        """Records whose version changed or went."""
        for name, record in catalogue.records.items():
            if catalogue.is_stale(record):
                kernel = f"{record.kernel.design} {record.kernel.version}"
                yield self.finding(name, (1, f"the code of {kernel} changed since"))
