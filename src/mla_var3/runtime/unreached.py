"""Reads ``unreached.toml`` of a design: coverage gaps that no problem reaches, with the reasons.

The file names gaps that coverage found, word for word but for the line, why no problem can reach
them, and for which versions this holds if not for all. A gap that it does not name fails the check.
Edits that ``check --mutants`` derives and that change no result stand there too, findings that
versions were measured with, and sizes of problems that reach what those drawn by chance do not.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mla_var3.blobs import once_per_content
from mla_var3.errors import HyperMlaError
from mla_var3.paths import relative
from mla_var3.runtime.execution import Argued
from mla_var3.runtime.registry import Version

FILE = "unreached.toml"
#: Words that a reason has at least: fewer say that there is none.
LEAST_WORDS = 6
_LINE = re.compile(r"([\w.]+\.py):\d+(:\d+)?")
_START = re.compile(r"^(?=\[\[)", re.MULTILINE)
_VERSIONS = re.compile(r"^versions\s*=\s*\[[^]]*\]", re.MULTILINE)
#: Comments and empty lines below an entry are about the next one.
_BELOW = re.compile(r"(\n[ \t]*(#[^\n]*)?)*\Z")


def _reason(why: str) -> str:
    if len(why.split()) < LEAST_WORDS:
        raise ValueError(f"{why!r} is no reason: it takes {LEAST_WORDS} words or more")
    return why


_Why = Annotated[str, AfterValidator(_reason)]


class _Gap(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    gap: str = Field(min_length=1)
    why: _Why
    versions: tuple[str, ...] | None = None


class _Same(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    edits: tuple[str, ...] = Field(min_length=1)
    why: _Why
    versions: tuple[str, ...] | None = None


class _Finding(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    file: str
    why: _Why
    versions: tuple[str, ...]


class _Reach(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    fields: dict[str, int | float | bool | str]
    why: _Why
    versions: tuple[str, ...] | None = None
    as_planned: bool = False
    sms: int | None = Field(default=None, ge=1)
    tiling: dict[str, int] = {}
    refused: bool = False
    twice: bool = False


class _Gaps(BaseModel):
    model_config = ConfigDict(extra="forbid")

    gap: list[_Gap] = []
    same: list[_Same] = []
    reach: list[_Reach] = []
    finding: list[_Finding] = []


def path_of(version: Version) -> Path:
    """The file in which a version's design names its gaps."""
    return version.path.parents[1] / FILE


def named(version: Version) -> dict[str, str]:
    """Reasons by gap, as the version's design names them.

    Raises:
        HyperMlaError: The file cannot be read, names a gap twice, or gives no reason.
    """
    found, path = _read(version).gap, path_of(version)
    mine = [one for one in found if one.versions is None or version.version in one.versions]
    reasons = {one.gap: one.why for one in mine}
    if len(reasons) < len(mine):
        raise HyperMlaError(f"{relative(path)} names a gap twice")
    return reasons


def same(version: Version) -> dict[str, str]:
    """Why each derived edit that is named changes no result.

    Raises:
        HyperMlaError: As for ``named``.
    """
    return {
        edit: one.why
        for one in _read(version).same
        if one.versions is None or version.version in one.versions
        for edit in one.edits
    }


def same_here(version: Version) -> frozenset[str]:
    """Derived edits that change no result in versions that are named, of which this is one.

    Raises:
        HyperMlaError: As for ``named``.
    """
    those = (one for one in _read(version).same if version.version in (one.versions or ()))
    return frozenset(edit for one in those for edit in one.edits)


class Reaching(NamedTuple):
    """A problem that lines of a version need, and that chance does not draw.

    Attributes:
        fields: Values of its fields.
        as_planned: Whether it needs the tilings that its plan chooses, and not any.
        sms: Multiprocessors of the device that it needs; None for the usual one's.
        tiling: Numbers that tilings with such a field need.
        refused: Whether the version has to refuse these; it is run where it does not.
        twice: Whether it is launched twice, the second time on other values.
    """

    fields: Mapping[str, Any]
    as_planned: bool = False
    sms: int | None = None
    tiling: Mapping[str, int] = MappingProxyType({})
    refused: bool = False
    twice: bool = False


def reaching(version: Version) -> tuple[Reaching, ...]:
    """The problems that lines of a version need, and that chance does not draw.

    Raises:
        HyperMlaError: As for ``named``.
    """
    return tuple(
        Reaching(
            dict(one.fields), one.as_planned, one.sms, dict(one.tiling), one.refused, one.twice
        )
        for one in _read(version).reach
        if one.versions is None or version.version in one.versions
    )


def findings(version: Version) -> tuple[Argued, ...]:
    """What is found of a version whenever it runs, and why its results are right all the same.

    Raises:
        HyperMlaError: As for ``named``.
    """
    mine = (one for one in _read(version).finding if version.version in one.versions)
    return tuple(Argued(one.kind, one.file, None, one.why) for one in mine)


def _read(version: Version) -> _Gaps:
    path = path_of(version)
    return _parsed(path) if path.exists() else _Gaps()


@once_per_content  # Whoever judges the edits of shared code asks for many versions.
def _parsed(path: Path) -> _Gaps:
    try:
        return _Gaps.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise HyperMlaError(f"{relative(path)}: {error.errors()[0]['msg']}") from error
    except ValueError as error:
        raise HyperMlaError(f"{relative(path)}: {error}") from error


def for_copy(version: Version, target: str) -> str:
    """The file's text, so that it names for a copy of a version what it names for the version.

    An entry that lists its versions lists the copy too; one that names the version's module is
    followed by one of the copy's. All else is as it was.

    Args:
        version: The version.
        target: The copy's version, ``v5``.

    Returns:
        The text; empty where there is no file.

    Raises:
        HyperMlaError: As for ``named``.
    """
    path, found = path_of(version), _read(version)
    if not path.exists():
        return ""
    base = version.path.parents[1].name
    module = re.compile(rf"(?<!\w){re.escape(version.path.name)}(?!\w)")
    there = {one.gap for one in found.gap if one.versions is None or target in one.versions}
    there |= {f"{one.kind} in {one.file}" for one in found.finding if target in one.versions}
    start, *blocks = _START.split(path.read_text(encoding="utf-8"))
    copied = (
        _copied(block, version.version, target, module, f"{base}_{target}.py", there)
        for block in blocks
    )
    return "".join([start, *copied])


def _copied(
    block: str, source: str, target: str, module: re.Pattern[str], copy: str, there: set[str]
) -> str:
    """An entry's text with what the copy needs of it."""
    [[entry]] = tomllib.loads(block).values()
    versions = entry.get("versions")
    if versions is not None and (source not in versions or target in versions):
        return block
    where = entry.get("gap") or f"{entry.get('kind')} in {entry.get('file')}"
    if module.search(where):
        if module.sub(copy, where) in there:
            return block
        text = _BELOW.sub("", block)
        own = _VERSIONS.sub(f"versions = {json.dumps([target])}", module.sub(copy, text))
        return f"{text}\n\n{own}{block[len(text) :]}"
    if versions is None or where in there:
        return block
    return _VERSIONS.sub(f"versions = {json.dumps([*versions, target])}", block, count=1)


def without_line(gap: str) -> str:
    """A gap as it is named: edits above a line move it and change nothing else."""
    return _LINE.sub(r"\1", gap)


def told_apart(gaps: Iterable[str], reasons: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Gaps that nobody names, and the named ones with their reasons."""
    found = list(gaps)
    open_ = [gap for gap in found if without_line(gap) not in reasons]
    return open_, {gap: reasons[without_line(gap)] for gap in found if gap not in open_}
