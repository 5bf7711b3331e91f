"""Workspace of a campaign: creates and reads its git repository of Step 0, versions and plans."""

from __future__ import annotations

import ast
import difflib
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mla_var3 import inputs, paths
from mla_var3.campaign import contract, stepzero
from mla_var3.campaign.memory import Memory
from mla_var3.errors import InputError, ToolchainError, UnknownNameError, UsageError
from mla_var3.evidence import Scalar
from mla_var3.paths import write_atomic

SETTINGS, README, VERSIONS, PLANS, PROFILES = (
    "campaign.json", "README.md", "versions", "plans", "profiles",
)  # fmt: skip
NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
#: A field of a plan that nobody filled in.
TBD = "TBD"
#: Fields of a plan, each a line ``Name: text``.
FIELDS = ("Parent", "Pattern", "Hypothesis", "Evidence", "Change", "Lines")


class Settings(BaseModel):
    """What a campaign is of.

    Attributes:
        name: Its name.
        device: Key of the device.
        source: The file that was adopted, by its full path.
        problem: Sizes, where they are not the file's own.
        target_us: Time at which it is done; None where no ceiling follows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    schema_version: int = Field(1, ge=1, le=1)
    name: str = Field(pattern=rf"^{NAME.pattern}$")
    device: str
    source: str
    problem: dict[str, Scalar] = Field(default_factory=dict)
    target_us: float | None = Field(None, gt=0)


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


class Workspace:
    """A campaign's folder.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.memory = root, Memory(root)

    @cached_property
    def settings(self) -> Settings:
        """What the campaign is of.

        Raises:
            InputError: The file is not sound; names the field.
        """
        try:
            return Settings.model_validate(inputs.read_json(self.root / SETTINGS))
        except InputError as error:
            raise InputError(SETTINGS, error.reason) from error
        except ValidationError as error:
            raise InputError(f"{SETTINGS}:", inputs.first_fault(error, "campaign")) from error

    def version(self, name: str) -> Path:
        """File of a version."""
        # Records are called after the file, so that it names the campaign too.
        return self.root / VERSIONS / f"{self.root.name.replace('-', '_')}_{name}.py"

    def plan_path(self, name: str) -> Path:
        """File of a version's plan."""
        return self.root / PLANS / f"{name}_plan.md"

    def next_name(self) -> str:
        """The version that comes next: numbers of masked ones are not given again."""
        known = [entry.number for entry in self.memory.entries(masked=True)]
        return f"v{max(known, default=-1) + 1}"

    def commit(self, message: str) -> None:
        """Commit all of the workspace.

        Raises:
            ToolchainError: git refuses.
        """
        self._git("add", "--all")
        if self._git("status", "--porcelain"):
            author = ("-c", "user.name=campaign", "-c", "user.email=campaign@localhost")
            self._git(*author, "commit", "--quiet", "--message", message)

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
        old, new = (inputs.read_text(self.version(v)).splitlines() for v in (one, other))
        rows = [r for r in difflib.unified_diff(old, new, n=0) if not r.startswith(("---", "+++"))]
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
        fields = _fields(inputs.read_text(path))
        for field in FIELDS:
            value = fields.get(field, "")
            if not value or TBD in value:
                raise InputError(f"{where}:", f"{field}: {'TBD' if value else 'it is missing'}")
        if not re.fullmatch(r"[1-9]\d{0,5}", fields["Lines"]):
            raise InputError(f"{where}:", f"Lines: {fields['Lines']!r} is not a number of lines")
        pattern = "" if fields["Pattern"] == "none" else fields["Pattern"]
        return Plan(
            name, fields["Parent"], pattern, fields["Hypothesis"],
            tuple(part.strip() for part in fields["Evidence"].split(",")),
            fields["Change"], int(fields["Lines"]),
        )  # fmt: skip

    def require_sourced(self) -> None:
        """Refuse the campaign's texts where a figure of hardware has no source.

        Raises:
            InputError: The first fault: file, line and figure.
        """
        for path in (self.root / README, *sorted((self.root / PLANS).glob("*.md"))):
            if not path.is_file():
                raise InputError(path.name, "is not there; nox -s campaign -- init wrote it")
            stepzero.require_sourced(path, path.relative_to(self.root).as_posix())


def _fields(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name in FIELDS:
            found.setdefault(name, value.strip())
    return found


def folder() -> Path:
    """Where campaigns lie."""
    return paths.out_dir() / "campaigns"


def find(name: str) -> Workspace:
    """A campaign by its name.

    Raises:
        UnknownNameError: There is none.
    """
    known = sorted(path.parent.name for path in folder().glob(f"*/{SETTINGS}"))
    if name not in known:
        raise UnknownNameError("campaign", name, known)
    return Workspace(folder() / name)


def create(settings: Settings, readme: str) -> Workspace:
    """Make a workspace: settings, README, the source as v0, and a git repository.

    Raises:
        UsageError: There is a campaign of the name.
    """
    root = folder() / settings.name
    if (root / SETTINGS).exists():
        raise UsageError(f"{paths.relative(root)} exists; nox -s campaign -- next {settings.name}")
    made = Workspace(root)
    for name in (VERSIONS, PLANS, PROFILES, "memory"):
        (root / name).mkdir(parents=True, exist_ok=True)
    if not (root / ".git").exists():
        made._git("init", "--quiet")
    write_atomic(root / ".gitignore", "__pycache__/\n.lock\n")
    write_atomic(made.version("v0"), standing_alone(Path(settings.source)))
    write_atomic(root / README, readme)
    # Last, since a campaign is there when its settings are.
    write_atomic(root / SETTINGS, json.dumps(settings.model_dump(mode="json"), indent=1) + "\n")
    made.commit(f"init: {settings.name} on {settings.device}")
    return made


def standing_alone(path: Path) -> str:
    """A file's text, what it names by paths from its own place named by full paths."""
    text = inputs.read_text(path)
    lines = text.splitlines(keepends=True)
    found: list[tuple[int, str]] = []
    for node in ast.walk(contract.tree(path)):
        match node:
            case ast.Call(
                func=ast.Name(id="definitions" | "script"),
                args=[ast.Constant(value=str(name), lineno=line), *_],
            ):
                found.append((line, name))
    for line, name in found:
        full = str((path.resolve().parent / name).resolve())
        lines[line - 1] = lines[line - 1].replace(f'"{name}"', f'"{full}"').replace(
            f"'{name}'", f"'{full}'"
        )  # fmt: skip
    return "".join(lines)


def plan_text(name: str, values: dict[str, Any], suggestions: Sequence[str]) -> str:
    """A plan, TBD where nothing is known."""
    rows = [f"{field}: {values.get(field.lower()) or TBD}" for field in FIELDS]
    lines = [f"# Plan of {name}", "", *rows]
    if suggestions:
        lines += ["", "## What the record calls for", "", *(f"- {line}" for line in suggestions)]
    return "\n".join(lines) + "\n"
