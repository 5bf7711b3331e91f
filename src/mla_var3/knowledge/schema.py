"""Schema of knowledge pages and devlogs: front matter as pydantic models, and sections."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import Annotated, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
)

from mla_var3.evidence.facts import Facts
from mla_var3.languages import languages
from mla_var3.static.sass import FAST_FAMILY
from mla_var3.workloads import workloads

SHARED = "shared"


def scopes() -> list[str]:
    """What a page may be about: all languages, or one that is here or that records speak of."""
    recorded = (model.model_fields["language"].default for model in get_args(get_args(Facts)[0]))
    return list(dict.fromkeys([SHARED, *languages(), *recorded]))


def regimes() -> list[str]:
    """The regimes of all workloads."""
    return list(dict.fromkeys(r.name for w in workloads().values() for r in w.regimes))


def archs() -> list[str]:
    """Compile targets that a language compiles for, or whose tensor cores are known."""
    compiled = (arch for language in languages().values() for arch in language.archs)
    return sorted({*compiled, *FAST_FAMILY}, key=lambda arch: (len(arch), arch))


def _one_of(known: Callable[[], Iterable[str]]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in (allowed := list(known())):
            raise ValueError(f"{value!r} is not one of {', '.join(allowed)}")
        return value

    return AfterValidator(check)


Kind = Literal["optimization", "anti-pattern"]
Scope = Annotated[str, _one_of(scopes)]
Impact = Literal["high", "medium", "low"]
Regime = Annotated[str, _one_of(regimes)]
Arch = Annotated[str, _one_of(archs)]
Comparison = Literal["<", "<=", "==", "!=", ">=", ">"]
Direction = Literal["up", "down"]
Basis = Literal["source-semantics", "measured", "static", "external", "single-observation"]

#: Sections of a pattern page: all of them, in this order, as ``##`` headings.
SECTIONS = (
    "When to apply",
    "Mechanism",
    "Affected metrics",
    "Implementation",
    "Performance evidence",
    "Generalization",
    "Pitfalls",
    "Interactions",
)
#: Sections of a devlog entry: all of them, in this order, as ``####`` headings.
DEVLOG_SECTIONS = (
    "What changed",
    "Why",
    "Predicted",
    "Falsified by",
    "Measured",
    "Insights",
    "Next",
)

#: Folder of each kind of page, below ``knowledge/`` or ``knowledge/languages/<language>/``.
FOLDERS: dict[Kind, str] = {"optimization": "optimizations", "anti-pattern": "anti-patterns"}

_ID = r"^[a-z0-9]+(-[a-z0-9]+)*$"
_VERSION = r"^[a-z][a-z0-9_]*(@[a-z][a-z0-9-]*)? v(0|[1-9][0-9]*)$"
Id = Annotated[str, Field(pattern=_ID, max_length=60)]
VersionKey = Annotated[str, Field(pattern=_VERSION)]
Line = Annotated[str, Field(min_length=1, pattern=r"^[^\n]+$")]
Value = bool | int | float | str


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Condition(_Model):
    """``metric comparison value``, for example ``spill_instructions > 0``."""

    metric: Line
    comparison: Comparison
    value: Value

    def holds(self, value: Value) -> bool:
        """Whether the condition is true of a metric's value."""
        if self.comparison == "==":
            return value == self.value
        if self.comparison == "!=":
            return value != self.value
        if isinstance(value, str) or isinstance(self.value, str):
            return False  # Text has no order; lint refuses such a trigger.
        return {
            "<": value < self.value,
            "<=": value <= self.value,
            ">=": value >= self.value,
            ">": value > self.value,
        }[self.comparison]

    def __str__(self) -> str:
        value = str(self.value).lower() if isinstance(self.value, bool) else self.value
        return f"{self.metric} {self.comparison} {value}"


class Trigger(Condition):
    """A condition that makes a page worth reading; ``with`` narrows it.

    Each trigger of a page fires on its own. The conditions under ``with`` must hold too, in the
    same stage where they speak of stages. ``gain`` names the metric that says how many times faster
    the stage would be without the cause.
    """

    with_: tuple[Condition, ...] = Field((), alias="with")
    gain: Line | None = None

    def __str__(self) -> str:
        return " and ".join([super().__str__(), *map(str, self.with_)])


class RecordedEvidence(_Model):
    """Metrics of one record or of several.

    Attributes:
        metric: One name or several of the metrics catalogue.
        stage: Stage of the records; needed when several stages state the metric.
        note: What the reader should see in it.
    """

    metric: tuple[Line, ...] = Field(min_length=1)
    stage: Line | None = None
    note: Line | None = None

    @field_validator("metric", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class RecordEvidence(RecordedEvidence):
    """Metrics of one record.

    Attributes:
        record: Path of the record from the top of the checkout.
    """

    record: Line


class PairEvidence(RecordedEvidence):
    """The same metrics of two records.

    ``after`` is the record in which the optimization is applied or the anti-pattern mended.
    """

    before: Line
    after: Line


class ExternalEvidence(_Model):
    """A figure somebody else published.

    Attributes:
        key: What ``[3.2x](source:key)`` in the text refers to.
        external: Who published it: title, author or number, year.
        address: Where it can be read, one URL.
        quoted: The words that hold the figure, verbatim; a formula among them as the page shows
            it, in plain characters.
    """

    key: Id
    external: Line
    address: str = Field(pattern=r"^https://[^\s()<>\"']+$")
    quoted: str = Field(min_length=1)


class ObservationEvidence(_Model):
    """A measurement of this project from before it kept records.

    Attributes:
        key: What ``[1594 us](source:key)`` in the text refers to.
        observed: Machine, driver, date and protocol.
        quoted: The observation with its figures.
    """

    key: Id
    observed: Line
    quoted: str = Field(min_length=1)


class CompiledEvidence(_Model):
    """What compilers made of kernels that are no version's own choice.

    Attributes:
        key: What ``[168 registers](source:key)`` in the text refers to.
        compiled: Name of a list in ``knowledge/compiles``; the facts come from the table that
            compiling it writes.
        cases: Cases of the list, in the order in which they are shown; all of them if empty.
        count: Opcodes to count beside what is always shown.
        refused: Whether what the compiler says that it could not do is shown.
        note: What the reader should see in it.
    """

    key: Id
    compiled: Id
    cases: tuple[Id, ...] = ()
    count: tuple[Line, ...] = ()
    refused: bool = False
    note: Line | None = None


class TestedEvidence(_Model):
    """What a test of this project asserts each time that it runs.

    Attributes:
        key: What ``[4 barriers](source:key)`` in the text refers to.
        tested: The test, as ``tests/folder/test_file.py::test_name``.
        quoted: What it asserts, with the figures.
    """

    __test__ = False  # Its name looks like a test's to pytest.

    key: Id
    tested: str = Field(pattern=r"^tests/[a-z0-9_/]+\.py::test_[a-z0-9_]+$")
    quoted: str = Field(min_length=1)


class SeededEvidence(_Model):
    """What the emulator says of a seeded bug.

    Attributes:
        seeded: ``kernel/bug`` of ``tests/emulator/seeded.toml``; the report comes from the table
            that running them writes.
    """

    seeded: str = Field(pattern=r"^[a-z0-9_]+/[a-z0-9-]+$")


EVIDENCE_FORMS = {
    "record": RecordEvidence,
    "before": PairEvidence,
    "external": ExternalEvidence,
    "observed": ObservationEvidence,
    "compiled": CompiledEvidence,
    "tested": TestedEvidence,
    "seeded": SeededEvidence,
}


def _form(entry: object) -> str | None:
    names = entry if isinstance(entry, dict) else getattr(type(entry), "model_fields", {})
    return next((form for form in EVIDENCE_FORMS if form in names), None)


Evidence = Annotated[
    Annotated[RecordEvidence, Tag("record")]
    | Annotated[PairEvidence, Tag("before")]
    | Annotated[ExternalEvidence, Tag("external")]
    | Annotated[ObservationEvidence, Tag("observed")]
    | Annotated[CompiledEvidence, Tag("compiled")]
    | Annotated[TestedEvidence, Tag("tested")]
    | Annotated[SeededEvidence, Tag("seeded")],
    Discriminator(
        _form,
        custom_error_type="evidence_form",
        custom_error_message=f"evidence needs one of the keys {', '.join(EVIDENCE_FORMS)}",
    ),
]
#: What a citation may name.
Cited = ExternalEvidence | ObservationEvidence | CompiledEvidence | TestedEvidence


class FrontMatter(_Model):
    """What the top of a pattern page states.

    Attributes:
        id: Kebab-case; the stem of the file and of the page's address.
        title: One line, as it stands in lists.
        kind: ``optimization`` or ``anti-pattern``.
        scope: ``shared`` by all languages, or the language it is about.
        impact: How much it moved or cost where it was seen.
        regimes: Where it matters, by the regimes of the workloads. A page that names none of a
            workload's says nothing of its regimes and holds in all.
        archs: Compile targets on which its mechanism exists.
        affects: Metric name to the direction in which following the page's subject moves it: for
            an optimization applying it, for an anti-pattern falling into it.
        triggers: Which metrics of a record make the page worth reading.
        basis: What kind of ground the claims stand on.
        evidence: What proves them.
        used_by: Versions that apply it, as ``flash_mla v1``, or ``flash_mla@cute-dsl v1`` where a
            design exists in several languages.
        violated_by: Versions that show the anti-pattern, or that leave the optimization out.
        symptoms: What an engineer sees or is told who needs the page, in the words of a search.
        interacts: Ids of pages that strengthen, replace or exclude this one.
        since: Day of the first version of the page.
    """

    id: Id
    title: Line = Field(max_length=90)
    kind: Kind
    scope: Scope
    impact: Impact
    regimes: tuple[Regime, ...] = Field(min_length=1)
    archs: tuple[Arch, ...] = Field(min_length=1)
    affects: dict[str, Direction] = Field(min_length=1)
    triggers: tuple[Trigger, ...] = ()
    basis: Basis
    evidence: tuple[Evidence, ...] = ()
    used_by: tuple[VersionKey, ...] = ()
    violated_by: tuple[VersionKey, ...] = ()
    symptoms: tuple[Line, ...] = ()
    interacts: tuple[Id, ...] = ()
    since: datetime.date


class TextFrontMatter(_Model):
    """What the top of a devlog, or of a knowledge text that is not a pattern, states.

    Attributes:
        title: One line.
        found_by: Other words by which the search finds its page, that of the design for a devlog.
        evidence: Cited sources and records, as on a pattern page.
    """

    title: Line = Field(max_length=90)
    found_by: tuple[Line, ...] = ()
    evidence: tuple[Evidence, ...] = ()
