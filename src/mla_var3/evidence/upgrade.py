"""Converts committed record files of older schemas to run files, and proves no value changed.

What was overwritten comes back from git where its run still means something. That is so for a
record that was timed, whose content hash is right, that names its sources, and that is older than
the one that stands under its name: it was measured together with others and then measured again. A
compile or a check can be repeated, and is left out; so is a record of schema 1, which says nothing
of its sources; and one that was removed or taken back by a commit, which somebody did not believe.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mla_var3.errors import RecordError
from mla_var3.evidence import migrate, runs, store
from mla_var3.evidence.model import Record
from mla_var3.evidence.sources import git, git_bytes

Old = dict[str, Any]


@dataclass(frozen=True)
class Migrated:
    """What a migration did.

    Attributes:
        records: Records of older files that were on disk.
        restored: Overwritten records that came back.
        values: Values that were compared before and after, all equal.
        files: The files of runs.
        removed: The older files, which are gone.
    """

    records: int
    restored: int
    values: int
    files: tuple[Path, ...]
    removed: tuple[Path, ...]


def upgrade(root: Path) -> Migrated:
    """Turn every older file below ``root``, and what was overwritten, into files of runs.

    Raises:
        RecordError: A file is no record, or a value is not found again; nothing was changed.
    """
    here = {path: _loaded(path) for path in store.files(root)}
    old = {path: data for path, data in here.items() if _is_old(data)}
    back = list(_overwritten({_name(path, root): data for path, data in old.items()}))
    before = [*old.values(), *back]
    written: list[Path] = []
    try:
        found = sorted(map(_record, before), key=lambda record: (record.time, record.key))
        written.extend(store.begin(root / run.folder, run) for run in runs.of(found))
        values = prove(before, written)
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    for path in old:
        path.unlink()
        _prune(path.parent, root)
    return Migrated(len(old), len(back), values, tuple(written), tuple(old))


def prove(before: Iterable[Old], written: Iterable[Path]) -> int:
    """How many values of the older records stand in the files, which is all of them.

    Args:
        before: Records as older files state them.
        written: Files of runs that hold them.

    Raises:
        RecordError: A record or a value of it is missing, other, or was added.
    """
    there: dict[tuple[str, ...], list[Record]] = {}
    for path in written:
        for record in store.read(path).as_measured():
            there.setdefault(_identity(record), []).append(record)
    count = 0
    for data in before:
        wanted = dict(leaves(migrate.observed(data)))
        found = there.get(_identity(_record(data)), [])
        if not any(dict(leaves(_json(record))) == wanted for record in found):
            raise RecordError(f"a value of {_record(data).key} is not found again")
        count += len(wanted)
    return count


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every value of nested JSON with its place; what is null is left out, as files leave it out.

    An empty list or mapping is a value. 1 and 1.0 differ.
    """
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from leaves(part, f"{place}/{name}")
    elif isinstance(value, list) and value:
        for index, part in enumerate(value):
            yield from leaves(part, f"{place}/{index}")
    elif value is not None:
        yield place, json.dumps(value)


def _identity(record: Record) -> tuple[str, ...]:
    return record.key, record.run, record.time.isoformat()


def _json(record: Record) -> Any:
    return record.model_dump(mode="json", exclude_none=True)


def _record(data: Old) -> Record:
    try:
        return migrate.record_of(data)
    except ValidationError as error:
        raise RecordError(f"a record of an older schema is not sound: {error}") from error


def _is_old(data: Any) -> bool:
    return isinstance(data, dict) and data.get("schema_version") in migrate.OLDER


def _loaded(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} holds no records: {error}") from error


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _prune(folder: Path, root: Path) -> None:
    """Remove folders that are empty now."""
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


# -- what was overwritten -------------------------------------------------------------------------


def _overwritten(alive: Mapping[str, Old]) -> Iterator[Old]:
    """Records of git's history that the module's rule brings back, each once."""
    for name, data in _history():
        standing = alive.get(name)
        if standing is not None and data != standing and _means_something(data, standing):
            yield data


def _means_something(data: Any, standing: Old) -> bool:
    return (
        isinstance(data, dict)
        and data.get("schema_version") == 2
        and data["outcome"].get("total") is not None
        and bool(data["kernel"]["sources"])
        and data["time"] < standing["time"]
        and _is_sealed(data)
    )


def _is_sealed(data: Old) -> bool:
    content = {name: value for name, value in data.items() if name != "content_sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest() == data.get("content_sha256")


def _history() -> Iterator[tuple[str, Any]]:
    """Every content that a JSON file below ``results/`` ever had, with its path below it."""
    listed = git("rev-list", "--objects", "HEAD", "--", "results") or ""
    named = (line.partition(" ") for line in listed.splitlines())
    blobs = {blob: name for blob, _, name in named if name.endswith(".json")}
    content = git_bytes("cat-file", "--batch", input="\n".join(blobs) + "\n")
    if not blobs or content is None:
        return
    at = 0
    for name in blobs.values():
        end = content.index(b"\n", at)
        size = int(content[at:end].split()[2])
        at = end + 1 + size + 1
        path = Path(name).relative_to("results")
        if path.parts[0] not in store.TABLES:
            yield path.as_posix(), json.loads(content[end + 1 : end + 1 + size])
