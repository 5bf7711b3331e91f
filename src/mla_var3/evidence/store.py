"""Reading, finding and writing records below ``results/``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mla_var3 import inputs
from mla_var3.errors import RecordError
from mla_var3.evidence.migrate import to_current
from mla_var3.evidence.model import SCHEMA_VERSION, Record
from mla_var3.paths import results_dir, write_atomic

#: Largest record that is read; the largest one committed has 60 kB.
MAX_BYTES = 8 << 20
#: What ``write_atomic`` calls a file until it is whole.
_LEFTOVER = re.compile(r"\.[a-z]+\.json\.[A-Za-z0-9_]{8}")


def write(record: Record, root: Path | None = None) -> tuple[Path, bool]:
    """Write ``record`` unless a sound file there already states the same facts.

    Args:
        record: The record; its content hash is filled in.
        root: Results folder; the checkout's by default.

    Returns:
        The path and whether the file changed.

    Raises:
        RecordError: The file could not be written; nothing was changed.
    """
    path = (root or results_dir()) / record.path
    if path.is_file():
        try:
            old = read(path)
            if old.facts() == record.facts() and old.content_sha256 == old.digest():
                return path, False
        except RecordError:
            pass  # An unreadable record is replaced.
    try:
        write_atomic(path, text_of(record))
        sweep(path.parent)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
    return path, True


def text_of(record: Record) -> str:
    """The file of a record, its content hash filled in."""
    sealed = record.model_copy(update={"content_sha256": record.digest()})
    return json.dumps(sealed.model_dump(mode="json", exclude_none=True), indent=1) + "\n"


def sweep(folder: Path) -> list[Path]:
    """Remove what killed runs left half-written in ``folder``; returns what was removed."""
    removed = []
    for path in folder.glob(".*.json.*"):
        if _LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def read(path: Path) -> Record:
    """The record at ``path``, brought to the current schema.

    Raises:
        RecordError: The file is missing, larger than any record, newer than this tool, or not a
            record; names the first offending field.
    """
    try:
        if not path.is_file():
            raise RecordError(f"cannot read record {path}: no such file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RecordError(f"cannot read record {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise RecordError(f"{path} is not a record: it is larger than {MAX_BYTES} bytes")
    return parse(content, str(path))


def parse(content: bytes, name: str) -> Record:
    """The record that ``content`` is; ``name`` says in errors where it came from.

    Raises:
        RecordError: As :func:`read`.
    """
    try:
        data: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name} is not a record: {error}") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordError(
            f"{name} has schema version {version}, newer than {SCHEMA_VERSION}, which this tool "
            "reads; update it"
        )
    try:
        current = content if version == SCHEMA_VERSION else to_current(data)
        return Record.model_validate_json(current, strict=True)
    except RecursionError as error:
        raise RecordError(f"{name} is not a record: it is nested too deeply") from error
    except ValidationError as error:
        raise RecordError(f"{name} is not a record: {inputs.first_fault(error)}") from error


#: Folders of tables, which are not records of one version each.
TABLES = ("conformance", "compiles", "fingerprints")


def paths(root: Path | None = None) -> list[Path]:
    """Every record file below ``root``, sorted."""
    base = root or results_dir()
    return sorted(p for p in base.glob("**/*.json") if p.parts[len(base.parts)] not in TABLES)


def find(
    root: Path | None = None,
    *,
    target: str | None = None,
    language: str | None = None,
    design: str | None = None,
    version: str | None = None,
    mode: str | None = None,
) -> Iterator[Record]:
    """Records below ``root`` that match, in path order; files in other folders are not read."""
    folders = [f"/{name}/" for name in (target, design, version) if name is not None]
    named = [*folders, f"/{mode}.json" if mode else ".json"]
    asked = {"target": target, "language": language, "design": design, "version": version,
             "mode": mode}  # fmt: skip
    wanted = {name: value for name, value in asked.items() if value is not None}
    for path in paths(root):
        if all(part in f"/{path.as_posix()}" for part in named):
            record = read(path)
            if wanted.items() <= keys(record).items():
                yield record


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


def relative(record: Record) -> str:
    """Where the record lies, from the top of the checkout."""
    return f"results/{record.path.as_posix()}"
