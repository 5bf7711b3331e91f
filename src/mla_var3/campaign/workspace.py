"""Workspace of a campaign: creates and reads its git repository of Step 0, versions and plans."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mla_var3 import devices, inputs, paths
from mla_var3.campaign import copying, restated, stepzero, subjects
from mla_var3.campaign.memory import Entry, Memory, VersionName
from mla_var3.campaign.subjects import Subject
from mla_var3.errors import InputError, ToolchainError, UnknownNameError, UsageError
from mla_var3.evidence import Scalar
from mla_var3.paths import write_atomic

SETTINGS, README, VERSIONS, PLANS, PROFILES = (
    "campaign.json", "README.md", "versions", "plans", "profiles",
)  # fmt: skip
NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
#: Held while git writes, and how long a git takes whose parent was killed.
OWN_LOCK, GIT_ENDS_WITHIN_S = "campaign.lock", 2.0
#: A field of a plan that nobody filled in, and what else people leave in such a place.
TBD = "TBD"
_OPEN = re.compile(r"\b(TBD|TODO|FIXME|XXX)\b|^\W*$|^(n/?a|none yet|unknown)\W*$", re.IGNORECASE)
_TITLE = re.compile(r"^# Plan of (.*)$", re.MULTILINE)
#: Fields of a plan, each a line ``Name: text``.
FIELDS = ("Parent", "Pattern", "Hypothesis", "Evidence", "Change", "Lines")


class Settings(BaseModel):
    """What a campaign is of.

    Attributes:
        name: Its name.
        device: Key of the device.
        source: The file that was adopted, by its full path; None for a design of ours.
        design: The design with its language; None for a file.
        start: The version that it begins with.
        problem: Sizes, where they are not the file's own.
        target_us: Time at which it is done; None where no ceiling follows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    schema_version: int = Field(1, ge=1, le=1)
    name: str = Field(pattern=rf"^{NAME.pattern}$")
    device: str
    source: str | None = None
    design: str | None = Field(None, pattern=r"^[a-z][a-z0-9_]*@[a-z][a-z0-9-]*$")
    start: VersionName = "v0"
    problem: dict[str, Scalar] = Field(default_factory=dict)
    target_us: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _of_one_thing(self) -> Self:
        if (self.source is None) == (self.design is None):
            raise ValueError("it is of a source or of a design, one of them")
        if self.source is not None and self.start != "v0":
            raise ValueError("start: a file begins with v0")
        return self


@dataclass(frozen=True)
class Plan:
    """A plan as its file states it.

    Attributes:
        version: The version that it is of.
        parent: The version that it starts from.
        pattern: Page of the knowledge that it follows; empty without one.
        hypothesis: What is expected, and why.
        evidence: Records that ask for it.
        change: What is to be changed.
        lines: About how many lines that takes.
    """

    version: str
    parent: str
    pattern: str
    hypothesis: str
    evidence: tuple[str, ...]
    change: str
    lines: int


def read_settings(root: Path) -> Settings:
    """What the campaign of a folder is of.

    Raises:
        InputError: The file is not sound; names the field.
    """
    try:
        found = Settings.model_validate(inputs.read_json(root / SETTINGS, unique=True), strict=True)
        key = devices.find(found.device).key
    except InputError as error:
        raise InputError(SETTINGS, error.reason) from error
    except UnknownNameError as error:
        raise InputError(f"{SETTINGS}:", f"device: {error}") from error
    except ValidationError as error:
        said = inputs.first_fault(error, "campaign").replace("Value error, ", "")
        raise InputError(f"{SETTINGS}:", said) from error
    if found.device != key:
        raise InputError(f"{SETTINGS}:", f"device: its key is {key!r}")
    if found.name != root.name:
        raise InputError(
            f"{SETTINGS}:", f"name: it is {found.name!r}, and its folder {root.name!r}"
        )
    return found


class Workspace:
    """A campaign's folder.

    Args:
        root: The folder.
        check: Runs all small problems of a version of ours.
    """

    def __init__(self, root: Path, check: subjects.Check | None = None) -> None:
        self.root, self.memory, self.check = root, Memory(root), check

    @cached_property
    def settings(self) -> Settings:
        """What the campaign is of.

        Raises:
            InputError: The file is not sound; names the field.
        """
        return read_settings(self.root)

    @cached_property
    def subject(self) -> Subject:
        """What it works on."""
        return subjects.of(self.settings, self.root, self.check)

    def version(self, name: str) -> Path:
        """File of a version."""
        return self.subject.path(name)

    def plan_path(self, name: str) -> Path:
        """File of a version's plan."""
        return self.root / PLANS / f"{name}_plan.md"

    def next_name(self) -> str:
        """The version that comes next: numbers of masked ones are not given again.

        Nor are those of versions that somebody else made meanwhile.
        """
        number = max((e.number for e in self.memory.entries(masked=True)), default=-1) + 1
        while self.settings.design and self._is_somebodys(f"v{number}"):
            number += 1
        return f"v{number}"

    def _is_somebodys(self, name: str) -> bool:
        return self.version(name).exists() and not self.plan_path(name).exists()

    def commit(self, message: str) -> None:
        """Commit all of the workspace.

        Raises:
            ToolchainError: git refuses.
        """
        with FileLock(self.root / ".git" / OWN_LOCK):
            self._unlock()
            self._git("add", "--all")
            if self._git("status", "--porcelain"):
                author = ("-c", "user.name=campaign", "-c", "user.email=campaign@localhost")
                self._git(*author, "commit", "--quiet", "--no-verify", "--message", message)

    def _unlock(self) -> None:
        """Remove what a killed git left locked; one that still runs is done in a moment."""
        until = time.monotonic() + GIT_ENDS_WITHIN_S
        while left := [p for p in (self.root / ".git").rglob("*.lock") if p.name != OWN_LOCK]:
            if time.monotonic() > until:
                for path in left:
                    path.unlink(missing_ok=True)
                return
            time.sleep(0.05)

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.root), *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no word"])[-1]
            raise ToolchainError(f"git {arguments[0]} in {self.root}: {said}")
        return done.stdout.strip()

    def difference(self, one: str, other: str) -> tuple[int, int]:
        """Lines added to and removed from a version by another."""
        old, new = self.subject.sources(one), self.subject.sources(other)
        rows = list(subjects.difference(old, new))
        return sum(r.startswith("+") for r in rows), sum(r.startswith("-") for r in rows)

    def plan(self, name: str) -> Plan:
        """The plan of a version.

        Raises:
            InputError: It is not there, or a field is missing or was not filled in.
        """
        path = self.plan_path(name)
        where = f"{PLANS}/{path.name}"
        if not path.is_file():
            raise InputError(where, "is not there; nox -s campaign -- plan writes it")
        try:
            text = inputs.read_text(path)
        except InputError as error:
            raise InputError(where, error.reason) from error
        if (titles := _TITLE.findall(text)) != [name]:
            said = ", ".join(titles) or "nothing"
            raise InputError(f"{where}:", f"its title says Plan of {said}")
        fields = _fields(text)
        for field in FIELDS:
            stated = fields.get(field, [])
            if len(stated) > 1:
                raise InputError(f"{where}:", f"{field}: it is stated {len(stated)} times")
            if not stated or not stated[0]:
                raise InputError(f"{where}:", f"{field}: it is missing")
            if _OPEN.search(stated[0]):
                raise InputError(f"{where}:", f"{field}: {stated[0]} is not filled in")
        told = {field: stated[0] for field, stated in fields.items()}
        if not re.fullmatch(r"[1-9]\d{0,5}", told["Lines"]):
            raise InputError(f"{where}:", f"Lines: {told['Lines']!r} is not a number of lines")
        pattern = "" if told["Pattern"] == "none" else told["Pattern"]
        return Plan(
            name, told["Parent"], pattern, told["Hypothesis"],
            tuple(part.strip() for part in told["Evidence"].split(",")),
            told["Change"], int(told["Lines"]),
        )  # fmt: skip

    def require_sourced(self) -> None:
        """Refuse the campaign's texts where a figure of hardware has no source.

        What the README and the settings say of Step 0 has to follow from the work that it states.

        Raises:
            InputError: The first fault: file, line and figure.
        """
        for path in (self.root / README, *sorted((self.root / PLANS).glob("*.md"))):
            if not path.is_file():
                raise InputError(path.name, "is not there; nox -s campaign -- init wrote it")
            stepzero.require_sourced(path, path.relative_to(self.root).as_posix())
        told = restated.of_text(self.root / README, devices.find(self.settings.device))
        target = self.settings.target_us
        if target is None or not math.isclose(target, told.target_us, rel_tol=1e-6):
            raise InputError(f"{SETTINGS}:", f"target_us: it is {target}, and Step 0 of {README} "
                             f"says {told.target_us}")  # fmt: skip
        restated.require_lines(self.root / README, told)


def _fields(text: str) -> dict[str, list[str]]:
    """What a plan states of each field, as often as it does."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name in FIELDS:
            found.setdefault(name, []).append(value.strip())
    return found


def folder() -> Path:
    """Where campaigns lie."""
    return paths.out_dir() / "campaigns"


def find(name: str, check: subjects.Check | None = None) -> Workspace:
    """A campaign by its name.

    Args:
        name: Its name.
        check: Runs all small problems of a version of ours.

    Raises:
        UnknownNameError: There is none.
    """
    known = sorted(path.parent.name for path in folder().glob(f"*/{SETTINGS}"))
    if name not in known:
        raise UnknownNameError("campaign", name, known)
    return Workspace(folder() / name, check)


def create(settings: Settings, readme: str, known: Sequence[Entry] = ()) -> Workspace:
    """Make a workspace: settings, README, what is known, a file as v0, and a git repository.

    Args:
        settings: What it is of.
        readme: Its README.
        known: What its memory begins with.

    Raises:
        UsageError: There is a campaign of the name.
    """
    root = folder() / settings.name
    if (root / SETTINGS).exists():
        raise UsageError(f"{paths.relative(root)} exists; nox -s campaign -- next {settings.name}")
    made = Workspace(root)
    for name in (VERSIONS, PLANS, PROFILES, "memory"):
        (root / name).mkdir(parents=True, exist_ok=True)
    made._git("init", "--quiet")  # Again, where the first one was killed.
    write_atomic(root / ".gitignore", "__pycache__/\n.lock\n")
    if settings.source is not None:
        copied = subjects.FileSubject(root, settings.problem)
        copying.bring(Path(settings.source), copied.folder, copied.stem("v0"))
    for entry in known:
        write_atomic(made.memory.path(entry.version), entry.text())
    write_atomic(root / README, readme)
    # Last, since a campaign is there when its settings are.
    write_atomic(root / SETTINGS, json.dumps(settings.model_dump(mode="json"), indent=1) + "\n")
    made.commit(f"init: {settings.name} on {settings.device}")
    return made


def plan_text(name: str, values: dict[str, Any], suggestions: Sequence[str]) -> str:
    """A plan, TBD where nothing is known."""
    rows = [f"{field}: {values.get(field.lower()) or TBD}" for field in FIELDS]
    lines = [f"# Plan of {name}", "", *rows]
    if suggestions:
        lines += ["", "## What the record calls for", "", *(f"- {line}" for line in suggestions)]
    return "\n".join(lines) + "\n"
