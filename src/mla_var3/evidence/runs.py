"""File format of records: schema of one run's file, to which entries are appended.

``results/<target>/<package>/<layer>/<design>/<time>-<run>.json``. A file says once what holds for
all of it: run, device and driver, toolchain, git, the sources of each version, and in two lists,
which entries name by place, the protocols of its times and what compilers made of its stages. Then
comes an entry per version, problem and mode. What was measured together stands together, since
times compare only within a run. A later run, or the same process under another toolchain, commit or
source, is another file, and so is what a full one has no room for; nothing that was measured is
ever replaced.

A field that a stage gets is one of ``model.StageFields``; one that a record gets is one of
``model.Record`` and of ``Entry``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from mla_var3.evidence import renames
from mla_var3.evidence.facts import Facts
from mla_var3.evidence.fingerprint import Digest
from mla_var3.evidence.model import (
    SCHEMA_VERSION,
    Clocks,
    Device,
    Failed,
    Git,
    Gpu,
    KernelIdentity,
    Language,
    Mode,
    Name,
    Outcome,
    Passed,
    PassedFields,
    Protocol,
    Record,
    RunId,
    Scalar,
    Skipped,
    Slug,
    Sources,
    Stage,
    StageFields,
    Strict,
    Target,
    VersionName,
    sha256_of,
)

Place = Annotated[int, Field(ge=0)]
#: Entries of a file to which no more are appended: each append writes the whole file anew.
FULL = 100


class StoredStage(StageFields):
    """A stage in a file.

    Attributes:
        static: Place of what the compiler made of it in the file's list.
    """

    static: Place | None = None


class StoredPassed(PassedFields):
    """Outcome of a run that ended, in a file.

    Attributes:
        protocol: Place of how its times were taken in the file's list.
        stages: The kernels in launch order.
    """

    protocol: Place | None = None
    stages: list[StoredStage] = Field(min_length=1)


class Entry(Strict):
    """One version at one problem in one mode.

    Attributes:
        version: One of the file's.
        problem: Its sizes and element type.
        slug: The problem in a path.
        mode: The mode.
        time: When it was made.
        clocks: As they were found right after the work.
        workload: Revision of its inputs, reference and tolerance; the first where left out.
        outcome: What came of it.
    """

    version: VersionName
    problem: dict[str, Scalar]
    slug: Slug
    mode: Mode
    time: AwareDatetime
    clocks: Clocks | None = None
    workload: Digest | None = None
    outcome: Annotated[StoredPassed | Failed | Skipped, Field(discriminator="status")]

    @property
    def key(self) -> tuple[str, str, str]:
        """Version, problem and mode: no two entries of a file have the same."""
        return self.version, self.slug, self.mode


class Run(Strict):
    """One file: what a run observed of one design.

    Attributes:
        run: Names the process that made it.
        target: Device key, ``static/sm_xx`` or ``cpu``.
        language: Key of the language.
        package: Its folder below ``kernels/``.
        layer: The workload.
        design: The design.
        device: The GPU; absent on the CPU and for a compile.
        toolchain: Version of each tool.
        git: The commit; absent when it could not be told.
        versions: Sources of each version: git blob id by path.
        protocols: How times were taken.
        facts: What compilers made of stages.
        entries: What was observed, in the order in which it was.
        content_sha256: Hash of all the rest.
    """

    schema_version: Literal[3] = SCHEMA_VERSION
    run: RunId
    target: Target
    language: Language
    package: Name
    layer: Name
    design: Name
    device: Gpu | None = None
    toolchain: dict[str, str]
    git: Git | None = None
    versions: dict[VersionName, Sources]
    protocols: list[Protocol] = Field(default_factory=list)
    facts: list[Facts] = Field(default_factory=list)
    entries: list[Entry] = Field(min_length=1)
    content_sha256: str = Field("", pattern=r"^([0-9a-f]{64})?$")

    @model_validator(mode="after")
    def _refers_to_what_is_there(self) -> Self:
        seen = set()
        for entry in self.entries:
            if entry.version not in self.versions:
                raise ValueError(f"an entry is of {entry.version}, whose sources are not named")
            if entry.key in seen:
                raise ValueError(f"{' '.join(entry.key)} stands in it twice")
            seen.add(entry.key)
            _check_places(entry.outcome, len(self.protocols), len(self.facts))
        _ = self.records  # An outcome with times and no protocol is refused as it is made.
        return self

    @property
    def folder(self) -> PurePosixPath:
        """Where it lies below ``results/``."""
        return PurePosixPath(self.target, self.package, self.layer, self.design)

    @property
    def stem(self) -> str:
        """Its name without suffix, but for a number where a process left several."""
        return f"{self.entries[0].time:%Y%m%dT%H%M%SZ}-{self.run}"

    @functools.cached_property
    def records(self) -> tuple[Record, ...]:
        """Its entries, each together with the run, under today's names of stages."""
        return tuple(self._record(entry, today=True) for entry in self.entries)

    def as_measured(self) -> Iterator[Record]:
        """The entry with the names that stages had when it was measured."""
        return (self._record(entry, today=False) for entry in self.entries)

    def _record(self, entry: Entry, *, today: bool) -> Record:
        clocks = entry.clocks or Clocks()
        return Record(
            kernel=KernelIdentity(
                language=self.language, package=self.package, layer=self.layer, design=self.design,
                version=entry.version, sources=self.versions[entry.version],
            ),
            problem=entry.problem, slug=entry.slug, mode=entry.mode, target=self.target,
            device=Device(**dict(self.device), **dict(clocks)) if self.device else None,
            toolchain=self.toolchain, outcome=self._outcome(entry.outcome, today), run=self.run,
            git=self.git, time=entry.time, workload=entry.workload,
        )  # fmt: skip

    def _outcome(self, stored: StoredPassed | Failed | Skipped, today: bool) -> Outcome:
        if isinstance(stored, Failed) and stored.stage is not None:
            return stored.model_copy(update=self._names(today, stage=stored.stage))
        if not isinstance(stored, StoredPassed):
            return stored
        stages = [self._stage(stage, today) for stage in stored.stages]
        protocol = None if stored.protocol is None else self.protocols[stored.protocol]
        return Passed(**{**dict(stored), "stages": stages, "protocol": protocol})

    def _stage(self, stage: StoredStage, today: bool) -> Stage:
        static = None if stage.static is None else self.facts[stage.static]
        names = self._names(today, name=stage.name, kernel=stage.kernel)
        return Stage(**{**dict(stage), **names, "static": static})

    def _names(self, today: bool, **names: str) -> dict[str, str]:
        """Names of stages and of kernels as the run saw them, or those of today."""
        if not today:
            return names
        design = self.language, self.design
        rename = {"kernel": renames.kernel}
        return {kind: rename.get(kind, renames.stage)(design, n) for kind, n in names.items()}

    def takes(self, record: Record) -> bool:
        """Whether a record may be appended: same run and design, a new key, and room."""
        kernel = record.kernel
        key = (kernel.version, record.slug, record.mode)
        return (
            len(self.entries) < FULL
            and _environment(record) == {name: getattr(self, name) for name in _ENVIRONMENT}
            and self.versions.get(kernel.version, kernel.sources) == kernel.sources
            and all(entry.key != key for entry in self.entries)
        )

    def with_(self, record: Record) -> Run:
        """The file with a further record, which it ``takes``."""
        protocols, facts = list(self.protocols), list(self.facts)
        entries = [*self.entries, _stored(record, protocols, facts)]
        versions = {**self.versions, record.kernel.version: record.kernel.sources}
        return Run.model_construct(
            **_environment(record), versions=versions, protocols=protocols, facts=facts,
            entries=entries,
        )  # fmt: skip

    def digest(self) -> str:
        """SHA-256 of all but ``content_sha256``."""
        return sha256_of(
            self.model_dump(mode="json", exclude_none=True, exclude={"content_sha256"})
        )

    def text(self) -> str:
        """The file, its content hash filled in."""
        sealed = self.model_copy(update={"content_sha256": self.digest()})
        return json.dumps(sealed.model_dump(mode="json", exclude_none=True), indent=1) + "\n"


#: What one file states once.
_ENVIRONMENT = (
    "run", "target", "language", "package", "layer", "design", "device", "toolchain", "git",
)  # fmt: skip


def _environment(record: Record) -> dict[str, Any]:
    kernel = record.kernel
    device = record.device
    gpu = device and Gpu(**{name: getattr(device, name) for name in Gpu.model_fields})
    values = (
        record.run, record.target, kernel.language, kernel.package, kernel.layer, kernel.design,
        gpu, record.toolchain, record.git,
    )  # fmt: skip
    return dict(zip(_ENVIRONMENT, values, strict=True))


def started(record: Record) -> Run:
    """A file that holds one record."""
    protocols: list[Protocol] = []
    facts: list[Any] = []
    entry = _stored(record, protocols, facts)
    versions = {record.kernel.version: record.kernel.sources}
    return Run.model_construct(
        **_environment(record), versions=versions, protocols=protocols, facts=facts,
        entries=[entry],
    )  # fmt: skip


def of(records: Iterable[Record]) -> list[Run]:
    """Files that hold the records, as few as their runs allow."""
    made: list[Run] = []
    for record in records:
        for place, run in enumerate(made):
            if run.takes(record):
                made[place] = run.with_(record)
                break
        else:
            made.append(started(record))
    return made


def json_schema() -> dict[str, Any]:
    """JSON Schema of a file."""
    return Run.model_json_schema()


def _clocks(device: Device | None) -> Clocks | None:
    found = {name: getattr(device, name, None) for name in Clocks.model_fields}
    return Clocks(**found) if any(found.values()) else None


def _stored(record: Record, protocols: list[Protocol], facts: list[Any]) -> Entry:
    outcome: StoredPassed | Failed | Skipped
    if isinstance(record.outcome, Passed):
        stages = [
            StoredStage(**{**dict(stage), "static": _place(facts, stage.static)})
            for stage in record.outcome.stages
        ]
        protocol = _place(protocols, record.outcome.protocol)
        outcome = StoredPassed(**{**dict(record.outcome), "stages": stages, "protocol": protocol})
    else:
        outcome = record.outcome
    return Entry(
        version=record.kernel.version, problem=record.problem, slug=record.slug, mode=record.mode,
        time=record.time, clocks=_clocks(record.device), workload=record.workload,
        outcome=outcome,
    )  # fmt: skip


def _place(known: list[Any], item: Any) -> int | None:
    """Where an item stands in a list, to which it is added where it is new."""
    if item is None:
        return None
    for place, there in enumerate(known):
        if there is item or there == item:
            return place
    known.append(item)
    return len(known) - 1


def _check_places(outcome: StoredPassed | Failed | Skipped, protocols: int, facts: int) -> None:
    if not isinstance(outcome, StoredPassed):
        return
    for what, place, there in (
        ("protocol", outcome.protocol, protocols),
        *(("static", stage.static, facts) for stage in outcome.stages),
    ):
        if place is not None and place >= there:
            raise ValueError(f"{what} {place} is not in the file's list, which has {there}")
