"""Memory of a campaign: reads and writes one JSON file per version, with what was tried and why.

Files are written whole and under a lock, so that two writers lose nothing and a killed one leaves
the old file or the new one.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from filelock import FileLock
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from mla_var3 import devices, inputs
from mla_var3.errors import InputError, UnknownNameError, UsageError
from mla_var3.evidence.compare import word
from mla_var3.paths import write_atomic
from mla_var3.versions import number_of

SCHEMA_VERSION: Literal[1] = 1
FOLDER, LOCK = "memory", ".lock"
_VERSION = r"^v(0|[1-9][0-9]*)$"
VersionName = Annotated[str, Field(pattern=_VERSION)]
Text = Annotated[str, Field(min_length=1, max_length=20_000)]
Verdict = Literal["baseline", "faster", "as fast", "slower", "wrong", "not timed"]
#: Whether a version is where the campaign began, was made by it, or was known before it.
Origin = Literal["start", "campaign", "history"]
#: Verdicts of an idea that is not tried again while its entry can be seen.
FAILED: tuple[Verdict, ...] = ("as fast", "slower", "wrong")


def _known_device(key: str) -> str:
    try:
        devices.find(key)
    except UnknownNameError as error:
        raise ValueError(str(error)) from error
    return key


def _inside(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"{path} leads out of the workspace")
    return path


#: Refuses an entry.
Allow = Callable[["Entry"], None]


class Part(BaseModel):
    """A part of an entry: without fields that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Pitfall(Part):
    """What went wrong on the way, and what mended it."""

    pitfall: Text
    fix: Text


class Diff(Part):
    """Lines that a version changed of its parent."""

    added: int = Field(ge=0)
    removed: int = Field(ge=0)
    files: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        """Lines added and removed."""
        return self.added + self.removed


class Correctness(Part):
    """The check that the version went through."""

    status: Literal["passed", "failed"]
    error: float | None = Field(None, ge=0)
    tolerance: float | None = Field(None, gt=0)
    message: str = ""

    @model_validator(mode="after")
    def _within(self) -> Self:
        known = self.error is not None and self.tolerance is not None
        if self.status == "passed" and known and self.error > self.tolerance:  # type: ignore[operator]
            raise ValueError(f"error {self.error:g} is above the tolerance {self.tolerance:g}, "
                             "and status says passed")  # fmt: skip
        return self


class Performance(Part):
    """A time, and its parent's in the same run.

    Attributes:
        median_us: Median of the version.
        parent_us: Median of its parent in the run; None for the baseline.
        run: What both were timed in.
        device: Key of the device.
        protocol: How it was timed.
    """

    median_us: float = Field(gt=0)
    parent_us: float | None = Field(None, gt=0)
    run: Annotated[str, Field(pattern=r"^[a-z0-9]{1,32}$")]
    parent_run: Annotated[str, Field(pattern=r"^[a-z0-9]{1,32}$")] | None = None
    device: Annotated[Text, AfterValidator(_known_device)]
    protocol: Text

    @model_validator(mode="after")
    def _of_one_run(self) -> Self:
        if (self.parent_us is None) != (self.parent_run is None):
            raise ValueError("parent_us and parent_run come together")
        if self.parent_run not in (None, self.run):
            raise ValueError(f"parent_us is of run {self.parent_run}, and median_us of {self.run}")
        return self


class Entry(Part):
    """One version of a campaign.

    Attributes:
        schema_version: Of this schema.
        version: ``v0`` has no parent.
        origin: Where it is from: the start is the baseline.
        parent: The version that it was made of.
        subject: The file, or the design's version.
        hypothesis: What was expected, and why.
        pattern: Id of the page of the knowledge that it follows; empty without one.
        plan: Its plan, from the top of the workspace.
        evidence: Records that asked for the change.
        change: What was changed.
        diff: How much.
        correctness: The check.
        performance: The time; None where nothing was timed.
        facts: What the compiler made of it, a sentence each.
        verdict: What came of it, as the times say.
        negative: Whether its design's devlog calls it a failure.
        pitfalls: What went wrong on the way.
        masked: Whether planning passes it over.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    version: VersionName
    origin: Origin = "campaign"
    parent: VersionName | None = None
    subject: Text
    hypothesis: Text
    pattern: Annotated[str, Field(pattern=r"^[a-z0-9-]*$")] = ""
    plan: str = ""
    evidence: tuple[Annotated[Text, AfterValidator(_inside)], ...] = ()
    change: Text
    diff: Diff = Diff(added=0, removed=0)
    correctness: Correctness
    performance: Performance | None = None
    facts: tuple[Text, ...] = ()
    verdict: Verdict
    negative: bool = False
    pitfalls: tuple[Pitfall, ...] = ()
    masked: bool = False

    @property
    def number(self) -> int:
        """Number of the version."""
        return number_of(self.version)

    @property
    def failed(self) -> bool:
        """Whether its idea brought nothing; what is as fast at one problem may win at others."""
        if self.origin == "history" and self.verdict == "as fast":
            return self.negative
        return self.negative or self.verdict in FAILED

    @model_validator(mode="after")
    def _descends(self) -> Self:
        if (self.parent is None) != (self.version == "v0"):
            raise ValueError("v0 has no parent, and every other version has one")
        if self.parent is not None and number_of(self.parent) >= self.number:
            raise ValueError(f"parent {self.parent} does not come before {self.version}")
        if self.origin == "campaign" and self.parent is not None and not self.evidence:
            raise ValueError("evidence names no record that asked for the change")
        return self

    @model_validator(mode="after")
    def _says_what_came_of_it(self) -> Self:
        first = self.origin == "start" or self.parent is None
        if (self.verdict == "baseline") != first and self.verdict != "wrong":
            raise ValueError("verdict baseline is the start's, and the start's alone")
        if (self.correctness.status == "failed") != (self.verdict == "wrong"):
            raise ValueError(f"verdict {self.verdict} and correctness {self.correctness.status} "
                             "do not agree")  # fmt: skip
        if self.verdict == "wrong" and self.performance is not None:
            raise ValueError("performance: a wrong kernel has no time")
        if first or self.verdict == "wrong":
            return self
        if self.performance is None or self.performance.parent_us is None:
            if self.verdict != "not timed":
                raise ValueError(f"verdict {self.verdict} needs times of both in one run")
            return self
        is_ = word(self.performance.parent_us, self.performance.median_us)
        if self.verdict != is_:
            raise ValueError(f"verdict is {self.verdict}, and the times say {is_}")
        return self

    def text(self) -> str:
        """The entry as its file holds it."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


def json_schema() -> dict[str, Any]:
    """JSON Schema of an entry."""
    return Entry.model_json_schema()


class Memory:
    """The memory of one campaign.

    Args:
        root: The workspace.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / FOLDER

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / LOCK):
            yield

    def path(self, version: str) -> Path:
        """File of a version.

        Raises:
            UsageError: It is no name of a version.
        """
        if not re.fullmatch(_VERSION, version):
            raise UsageError(f"{version!r} is not a version: versions are v0, v1, and so on")
        return self.folder / f"{version}.json"

    def entries(self, masked: bool = False) -> list[Entry]:
        """All entries in order.

        Args:
            masked: Those that planning passes over too.

        Raises:
            InputError: A file is not sound; names it and the field.
        """
        files = sorted(self.folder.glob("v*.json"), key=lambda file: (len(file.stem), file.stem))
        found = [self._read(file) for file in files]
        known = {entry.version for entry in found}
        for entry in found:
            if entry.parent is not None and entry.parent not in known:
                raise InputError(
                    f"{FOLDER}/{entry.version}.json:", f"parent: there is no {entry.parent}.json"
                )
        return [entry for entry in found if masked or not entry.masked]

    def _read(self, file: Path) -> Entry:
        name = f"{FOLDER}/{file.name}"
        try:
            content = inputs.read_json(file, unique=True)
        except InputError as error:
            raise InputError(name, error.reason) from error
        entry = entry_of(content, file.stem)
        if f"{entry.version}.json" != file.name:
            raise InputError(f"{name}:", f"version: it is of {entry.version}")
        return entry

    def read(self, version: str) -> Entry:
        """The entry of a version.

        Raises:
            UnknownNameError: There is none.
        """
        path = self.path(version)
        if not path.is_file():
            known = [entry.version for entry in self.entries(masked=True)]
            raise UnknownNameError("version of the memory", version, known)
        return self._read(path)

    def create(self, content: Mapping[str, Any], allow: Allow = lambda _: None) -> Entry:
        """Add an entry, where ``allow`` does not refuse it.

        Raises:
            InputError: It is not sound, or its parent is not there.
            UsageError: The version has one already.
        """
        entry = entry_of(content)
        with self._locked():
            path = self.path(entry.version)
            if path.exists():
                raise UsageError(f"{FOLDER}/{path.name} exists; memory update changes it")
            if entry.parent is not None and not self.path(entry.parent).is_file():
                raise InputError(f"{FOLDER}/{path.name}:", f"parent: there is no {entry.parent}")
            allow(entry)
            write_atomic(path, entry.text())
        return entry

    def update(
        self, version: str, changes: Mapping[str, Any], allow: Allow = lambda _: None
    ) -> Entry:
        """Replace fields of an entry; all others stay, whoever wrote them in between.

        Args:
            version: The version.
            changes: Fields with what they become.
            allow: Refuses an entry that does not fit the campaign.

        Raises:
            UnknownNameError: There is no such entry.
            InputError: What comes of it is not sound, or it would be another version's.
        """
        with self._locked():
            old = self.read(version)
            if changes.get("version", version) != version:
                raise InputError(f"{FOLDER}/{version}.json:", "version: it cannot be changed")
            entry = entry_of({**old.model_dump(mode="json"), **changes}, version)
            allow(entry)
            write_atomic(self.path(version), entry.text())
        return entry

    def mask(self, version: str, masked: bool = True) -> Entry:
        """Have planning pass an entry over, or see it again.

        Raises:
            UsageError: It is the baseline, or so already.
        """
        entry = self.read(version)
        if masked and entry.origin == "start":
            raise UsageError(f"{version} is the baseline, which cannot be masked")
        if entry.masked == masked:
            raise UsageError(f"{version} is {'masked already' if masked else 'not masked'}")
        return self.update(version, {"masked": masked})

    def restart(self, version: str) -> list[Entry]:
        """Mask all that the campaign made after a version; returns what was masked.

        Raises:
            UnknownNameError: There is no such version.
            UsageError: The version is masked, or was there before the campaign.
        """
        start = self.read(version)
        if start.origin == "history":
            raise UsageError(f"{version} was there before; campaign init begins one from it")
        if start.masked:
            raise UsageError(f"{version} is masked; memory unmask {version} comes first")
        later = [e for e in self.entries() if e.number > start.number and e.origin == "campaign"]
        return [self.mask(e.version) for e in later]

    def summary(self) -> list[str]:
        """A line per entry."""
        return [_line(entry) for entry in self.entries(masked=True)]


def entry_of(content: Mapping[str, Any], version: str = "") -> Entry:
    """An entry from what JSON holds.

    Raises:
        InputError: It is not sound; names the field.
    """
    try:
        # As JSON, so that a word is no number and no truth, as the schema says.
        return Entry.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        name = version or str(content.get("version", "entry"))
        raise InputError(f"{FOLDER}/{name}.json:", _fault(error)) from error


def _fault(error: ValidationError) -> str:
    """The first fault in one line, the field before it."""
    return " ".join(inputs.first_fault(error, "entry").replace("Value error, ", "").split())


def _line(entry: Entry) -> str:
    time = f", {entry.performance.median_us:,.2f} us" if entry.performance else ""
    mark = " (masked)" * entry.masked + " (history)" * (entry.origin == "history")
    pattern = f" [{entry.pattern}]" if entry.pattern else ""
    change = entry.change.split("\n", 1)[0]
    return f"{entry.version}{mark}: {entry.verdict}{time}{pattern}: {change}"


def tried(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Patterns that brought nothing, with the entry that says so."""
    return {entry.pattern: entry for entry in entries if entry.pattern and entry.failed}
