"""Reads and writes the committed table of fingerprints: what each version's sources compile to.

A build is what one or several states of a version's sources compile to, problem by problem. States
that compile to the same machine code and launches are one build; the first build of a version is
that of today's sources. ``app.codes`` fills the table in, and reading it takes no compiler.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mla_var3 import inputs, syntax
from mla_var3.blobs import blob_of, once_per_content
from mla_var3.errors import RecordError
from mla_var3.evidence.fingerprint import Digest, Fingerprint, digest
from mla_var3.evidence.model import Scalar
from mla_var3.paths import results_dir, write_atomic

FOLDER = "fingerprints"
Sources = Mapping[str, str]


_Table = TypeVar("_Table", bound=BaseModel)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Case(_Model):
    """A problem under a tiling on a device.

    Attributes:
        device: Key of the device whose arch is compiled for and whose grids are launched; or
            ``static/<arch>`` for the one that stands for an arch.
        problem: Its sizes.
        tilings: Of each stage, in launch order.
    """

    device: str
    problem: dict[str, Scalar]
    tilings: tuple[dict[str, Scalar], ...]

    @cached_property  # Thousands of records ask tables of hundreds of cases.
    def key(self) -> str:
        """What two equal cases share, however their fields are ordered."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True)


#: The only case of a version that calls a library, which no problem changes.
CALL = Case(device="any", problem={}, tilings=())


class Compiled(_Model):
    """A case and the fingerprint of each of its stages, by name and in launch order.

    Attributes:
        case: The case.
        stages: Its fingerprints.
        error: Why there are none.
    """

    case: Case
    stages: dict[str, Fingerprint] = Field(default_factory=dict)
    error: str | None = None


class Build(_Model):
    """What states of a version's sources compile to.

    Attributes:
        sources: Digest of each state that compiles to it.
        compiled: The cases.
        why: Why the machine code was changed to this, where that was declared.
        since: When; what ran before is of an older build, though its sources may be the same: what
            kernels are compiled by lies outside them too.
    """

    sources: tuple[Digest, ...]
    compiled: tuple[Compiled, ...] = ()
    why: str | None = None
    since: datetime.datetime | None = None

    def find(self, case: Case) -> Compiled | None:
        """What a case compiles to; None where it was not compiled."""
        return self._by_case.get(case.key)

    @cached_property
    def _by_case(self) -> dict[str, Compiled]:
        """What was compiled, by case; the first where one was compiled twice."""
        return {one.case.key: one for one in reversed(self.compiled)}


class File(_Model):
    """A source file: its git blob id, and the digest of what it says without its comments."""

    blob: str
    syntax: Digest


class Version(_Model):
    """One version.

    Attributes:
        files: Its sources by path, as they were when last compiled.
        builds: What its sources of today and of records compile to, today's first.
        problem: What it computes, such as ``mla.LatentProblem``.
        defaults: Digest of the tilings that the problems of its cases have by default.
    """

    problem: str = ""
    defaults: Digest | None = None
    files: dict[str, File]
    builds: tuple[Build, ...]

    @property
    def today(self) -> Build:
        """The build of today's sources."""
        return self.builds[0]

    @property
    def compiled_sources(self) -> dict[str, str]:
        """Blob ids of its sources, as they were when last compiled, by path."""
        return {name: file.blob for name, file in self.files.items()}

    def build_of(self, sources: Sources, time: datetime.datetime) -> Build | None:
        """The build that a state of the sources was at a time; None where it was never compiled."""
        wanted = state_digest(sources)
        then = (b for b in self.builds if b.since is None or b.since <= time)
        return next((build for build in then if wanted in build.sources), None)

    def differing(self) -> list[str]:
        """Sources that say something else than when they were compiled, or are gone."""
        from mla_var3.evidence.sources import file_of

        return [
            name
            for name, known in self.files.items()
            if blob_of(file_of(name)) != known.blob and syntax_of(file_of(name)) != known.syntax
        ]


class Table(_Model):
    """All versions of a design.

    Attributes:
        toolchain: Versions of the tools that compiled it.
        versions: By version.
    """

    schema_version: Literal[1] = 1
    toolchain: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, Version] = Field(default_factory=dict)


def state_digest(sources: Sources) -> str:
    """Digest of a state of a version's sources: paths and blob ids."""
    return digest(f"{name} {sources[name]}" for name in sorted(sources))


def syntax_of(file: Path) -> str | None:
    """Digest of what a source file says, comments and docstrings aside; None without the file."""
    try:
        return _syntax(file)
    except (OSError, SyntaxError, ValueError):
        return None


@once_per_content
def _syntax(file: Path) -> str:
    return digest([syntax.bare(file.read_text(encoding="utf-8"))])


def files_of(files: Iterable[Path], sources: Sources) -> dict[str, File]:
    """The sources as the table keeps them.

    Args:
        files: The files, in the order of ``sources``.
        sources: Blob id by path.
    """
    return {
        name: File(blob=sources[name], syntax=_syntax(file))
        for name, file in zip(sources, files, strict=True)
    }


def path_of(package: str, layer: str, design: str, root: Path | None = None) -> Path:
    """Where the table of a design lies."""
    return (root or results_dir()) / FOLDER / package / layer / f"{design}.json"


def read(path: Path) -> Table:
    """The table at ``path``; an empty one where there is none.

    Raises:
        RecordError: It is not a table.
    """
    return table_at(path, Table, "fingerprints")


def table_at(path: Path, kind: type[_Table], of: str) -> _Table:
    """A table of some kind; an empty one where there is none.

    Args:
        path: Where it lies.
        kind: Its model, which has defaults for everything.
        of: What it is a table of, for errors.

    Raises:
        RecordError: It is not a table.
    """
    if not path.is_file():
        return kind()
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise RecordError(f"{path} is no table of {of}: {inputs.first_fault(error)}") from error


def write(table: Table, path: Path) -> None:
    """Write a table, a line per compiled case, so that a change shows as the lines it changes."""
    content = table.model_dump(mode="json", exclude_unset=True)
    write_atomic(path, "\n".join(lines(content, leaf="case")) + "\n")


def lines(value: Any, leaf: str, indent: str = "", key: str = "") -> Iterable[str]:
    """JSON with one line for each object that has the key ``leaf``, and for each that holds none.

    Args:
        value: A JSON value.
        leaf: The key.
        indent: What stands before each line.
        key: The name of the value in the object around it.
    """
    opening = f"{indent}{json.dumps(key)}: " if key else indent
    if not _holds(value, leaf):
        yield opening + json.dumps(value)
        return
    named = value.items() if isinstance(value, dict) else (("", each) for each in value)
    yield opening + "[{"[isinstance(value, dict)]
    parts = [list(lines(each, leaf, indent + " ", name)) for name, each in named]
    for part in parts[:-1]:
        part[-1] += ","
    yield from (line for part in parts for line in part)
    yield indent + "]}"[isinstance(value, dict)]


def _holds(value: Any, leaf: str) -> bool:
    """Whether an object inside a value has a key, and the value itself does not."""
    if not isinstance(value, dict | list) or leaf in value:
        return False
    inner = value.values() if isinstance(value, dict) else value
    found = (each for each in inner if isinstance(each, dict | list))
    return any(leaf in each or _holds(each, leaf) for each in found)
