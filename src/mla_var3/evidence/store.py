"""Stores records below ``results/``: writes, reads and finds their files."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mla_var3 import inputs
from mla_var3.errors import RecordError
from mla_var3.evidence import migrate, runs
from mla_var3.evidence.model import SCHEMA_VERSION, Record, Skipped
from mla_var3.evidence.runs import Run
from mla_var3.paths import results_dir, write_atomic

#: Largest file that is read; the largest one committed has 200 kB.
MAX_BYTES = 32 << 20
#: What a file is called until it is whole.
_LEFTOVER = re.compile(r"\..+\.json\.[A-Za-z0-9_]{8}")
#: Age above which such a file is of a process that was killed: none takes that long to write one.
LEFT_AFTER_S = 3600.0
#: Folders of tables, which are not of one design each.
TABLES = ("conformance", "compiles", "contributions", "court", "fingerprints")
#: How an address begins.
PREFIX = "results/"


# -- writing --------------------------------------------------------------------------------------


def write(record: Record, root: Path | None = None) -> tuple[Path, bool]:
    """Add ``record`` to the file of this process and design, or begin that file.

    What took no times and came of the same as the newest record of the same key is not written
    again: a compile repeated teaches nothing, though an assembler may make other code of the same
    tile IR from run to run. One that has become of other code is no such record. No file of another
    process is ever touched.

    Args:
        record: The record.
        root: Results folder; the checkout's by default.

    Returns:
        The file that states it, and whether it changed.

    Raises:
        RecordError: It could not be written; nothing was changed.
    """
    root = root or results_dir()
    if not record.is_timed and (same := _stated(record, root)) is not None:
        return same, False
    try:
        path = _add(record, root)
        sweep(path.parent)
    except OSError as error:
        raise RecordError(f"cannot write below {root}: {error.strerror or error}") from error
    return path, True


def _stated(record: Record, root: Path) -> Path | None:
    """The file whose record is the newest of the same key, where it came of the same and stands."""
    from mla_var3.evidence import states

    found = [
        (other.time, path)
        for path in files(root, folder_of(record))
        for other in _readable(path)
        if other.key == record.key
    ]
    if not found:
        return None
    newest = max(found)[1]
    same = any(
        o.key == record.key and o.made_of() == record.made_of() and not states.is_stale(o)
        for o in _readable(newest)
    )
    return newest if same else None


def _readable(path: Path) -> tuple[Record, ...]:
    try:
        return records_of(path)
    except RecordError:
        return ()  # Not ours to mend; `records verify` names it.


#: Files that this process began, by its id, folder and run.
_begun: dict[tuple[int, Path, str], list[Path]] = {}


def _add(record: Record, root: Path) -> Path:
    folder = root / folder_of(record)
    mine = _begun.setdefault((os.getpid(), folder, record.run), [])
    for path in mine:
        if path.is_file() and (run := read(path)).takes(record):
            write_atomic(path, run.with_(record).text())
            return path
    mine.append(begin(folder, runs.started(record)))
    return mine[-1]


def begin(folder: Path, run: Run) -> Path:
    """Write a file under a name that no other has, whole from the first moment that it is seen.

    Raises:
        OSError: The disk is full or the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem, text = run.stem, run.text()
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{stem}.json.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        number = 1
        while True:
            path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            try:
                os.link(name, path)
                return path
            except FileExistsError:
                number += 1
    finally:
        Path(name).unlink(missing_ok=True)


def sweep(folder: Path, older_than_s: float = LEFT_AFTER_S) -> list[Path]:
    """Remove what killed runs of this user left half-written in ``folder``; returns what went.

    A file that another process is writing right now is young, one of another user is theirs.
    """
    removed = []
    for path in folder.glob(".*.json.*"):
        with contextlib.suppress(FileNotFoundError):  # Its writer was done just now.
            told = path.stat()
            old = time.time() - told.st_mtime > older_than_s
            if _LEFTOVER.fullmatch(path.name) and old and told.st_uid == os.getuid():
                path.unlink()
                removed.append(path)
    return removed


# -- reading --------------------------------------------------------------------------------------


def read(path: Path) -> Run:
    """The file at ``path``, brought to the current schema.

    Raises:
        RecordError: The file is missing, larger than any of ours, newer than this tool, or does
            not hold records; names the first offending field.
    """
    try:
        if not path.is_file():
            raise RecordError(f"cannot read records {path}: no such file")
        told = path.stat()
        if told.st_size > MAX_BYTES:
            raise RecordError(f"{path} holds no records: it is larger than {MAX_BYTES} bytes")
        return _read(path, told.st_mtime_ns, told.st_size)
    except OSError as error:
        raise RecordError(f"cannot read records {path}: {error.strerror}") from error


@functools.lru_cache(maxsize=4096)
def _read(path: Path, modified: int, size: int) -> Run:
    """Read a file, once per content: advice, comparisons and pages ask for the same files."""
    return parse(path.read_bytes(), str(path))


def parse(content: bytes, name: str) -> Run:
    """The run that ``content`` states; ``name`` says in errors where it came from.

    Raises:
        RecordError: As :func:`read`.
    """
    try:
        data: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name} holds no records: {error}") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordError(
            f"{name} has schema version {version}, newer than {SCHEMA_VERSION}, which this tool "
            "reads; update it"
        )
    try:
        if version in migrate.OLDER:
            return runs.started(migrate.record_of(data))
        return Run.model_validate_json(content, strict=True)
    except RecursionError as error:
        raise RecordError(f"{name} holds no records: it is nested too deeply") from error
    except ValidationError as error:
        raise RecordError(f"{name} holds no records: {inputs.first_fault(error)}") from error


def records_of(path: Path) -> tuple[Record, ...]:
    """The records of one file, in its order; raises like ``read``."""
    return read(path).records


def files(root: Path | None = None, folder: str = "") -> list[Path]:
    """Every file of records below ``root``, or below a folder of it, sorted."""
    base = root or results_dir()
    found = (base / folder).glob("**/*.json")
    return sorted(p for p in found if p.parts[len(base.parts)] not in TABLES)


# -- finding --------------------------------------------------------------------------------------


def folder_of(record: Record) -> str:
    """Where the file of a record lies below the results folder."""
    kernel = record.kernel
    return f"{record.target}/{kernel.package}/{kernel.layer}/{kernel.design}"


def address(record: Record) -> str:
    """How pages and commands name a record: the newest of its key has this address."""
    return f"{PREFIX}{record.key}"


def is_address(name: str) -> bool:
    """Whether a record could have this address."""
    key = name.removeprefix(PREFIX).partition("@")[0]
    parts = key.split("/")
    return name.startswith(PREFIX) and len(parts) in (7, 8) and not {"", ".."} & {*parts}


def find(
    root: Path | None = None,
    *,
    target: str | None = None,
    language: str | None = None,
    design: str | None = None,
    version: str | None = None,
    mode: str | None = None,
) -> Iterator[Record]:
    """All records below ``root`` that match, in the order of their keys, then of their times."""
    folders = [f"/{name}/" for name in (target, design) if name is not None]
    asked = {"target": target, "language": language, "design": design, "version": version,
             "mode": mode}  # fmt: skip
    wanted = {name: value for name, value in asked.items() if value is not None}
    found = [
        record
        for path in files(root)
        if all(part in f"/{path.as_posix()}" for part in folders)
        for record in records_of(path)
        if wanted.items() <= keys(record).items()
    ]
    yield from sorted(found, key=lambda record: (record.key, record.time))


def newest(found: Iterable[Record]) -> list[Record]:
    """Of records of the same key the newest, in the order in which the keys come.

    One that was skipped, where no compiler was, hides none that was made.
    """
    latest: dict[str, Record] = {}
    for record in found:
        there = latest.get(record.key)
        if there is None or _standing(there) <= _standing(record):
            latest[record.key] = record
    return list(latest.values())


def _standing(record: Record) -> tuple[bool, datetime.datetime]:
    return not isinstance(record.outcome, Skipped), record.time


def at(name: str, root: Path | None = None) -> Record:
    """The record of an address: the newest of its key, or that of one run with ``@<run>``.

    Args:
        name: ``results/<target>/<package>/<layer>/<design>/<version>/<slug>/<mode>``, with or
            without ``results/``.
        root: Results folder; the checkout's by default.

    Raises:
        RecordError: There is none.
    """
    key, _, run = name.removeprefix(PREFIX).partition("@")
    folder = key.rsplit("/", 3)[0]
    if not is_address(f"{PREFIX}{key}"):
        raise RecordError(
            f"{name} is no address of a record: "
            "results/<target>/<package>/<layer>/<design>/<version>/<problem>/<mode>"
        )
    found = [
        record
        for path in files(root, folder)
        for record in records_of(path)
        if record.key == key and run in ("", record.run)
    ]
    if not found:
        raise RecordError(f"there is no record {PREFIX}{key}{f' of run {run}' if run else ''}")
    return newest(found)[0]


class Index:
    """All sound records below a results folder, read once.

    Args:
        root: Results folder; the checkout's by default.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or results_dir()

    @functools.cached_property
    def records(self) -> tuple[Record, ...]:
        """All of them, by key and then by time; files that hold none are passed over."""
        found = [record for path in files(self.root) for record in _readable(path)]
        return tuple(sorted(found, key=lambda record: (record.key, record.time)))

    @functools.cached_property
    def history(self) -> dict[str, list[Record]]:
        """All records of each key, the newest last."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.key, []).append(record)
        return found

    @functools.cached_property
    def newest(self) -> dict[str, Record]:
        """The newest record of each key, by its address."""
        return {address(record): record for record in newest(self.records)}

    @functools.cached_property
    def _by_run(self) -> dict[tuple[str, str], Record]:
        return {(address(record), record.run): record for record in self.records}

    def at(self, name: str) -> Record:
        """The record of an address; see the function of that name.

        Raises:
            RecordError: There is none.
        """
        key, _, run = name.partition("@")
        found = self._by_run.get((key, run)) if run else self.newest.get(key)
        if found is None:
            raise RecordError(f"record {name} does not exist")
        return found

    def pair(self, first: str, second: str) -> tuple[Record, Record]:
        """The records of two addresses: of the newest run that has both, else the newest of each.

        Raises:
            RecordError: One of them does not exist.
        """
        one, other = self.at(first), self.at(second)
        if "@" in first + second or one.run == other.run:
            return one, other
        shared = [
            (record, there)
            for record in self.history[one.key]
            if (there := self._by_run.get((second, record.run)))
        ]
        return shared[-1] if shared else (one, other)


def keys(record: Record) -> dict[str, str]:
    """What ``find`` goes by."""
    kernel = record.kernel
    return {
        "target": record.target,
        "language": kernel.language,
        "design": kernel.design,
        "version": kernel.version,
        "mode": record.mode,
    }
