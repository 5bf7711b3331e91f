"""Reads tileiras's optimisation remarks: cleaned, merged, and tied to source lines."""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from mla_var3.errors import ToolchainError

Kind = Literal["passed", "missed", "failed", "analysis"]

_KINDS: dict[str, Kind] = {
    "Passed": "passed",
    "Missed": "missed",
    "Failure": "failed",
    "Failed": "failed",
    "Analysis": "analysis",
}
_LOCATION = re.compile(r"^loc\([^)]*\):\s*")


class Remark(BaseModel):
    """What the compiler did, or could not do, with one operation of the source.

    Attributes:
        file: Source file, relative (see :func:`relative_source`).
        line: 1-based line; 0 when the compiler gave none.
        kind: Whether an optimisation was applied.
        category: ``memory`` or ``tensor-core``.
        message: One sentence, with the instruction and the reasons.
        count: Operations of that line that the remark was made for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    line: int
    kind: Kind
    category: str
    message: str
    count: int = 1


class _Loader(yaml.SafeLoader):
    """SafeLoader that keeps a document's tag (the kind of remark) in its ``kind`` key."""


def _tagged(loader: _Loader, tag: str, node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(None, None, "a remark is no mapping", None)
    content = {str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}
    return {**content, "kind": tag}


_Loader.add_multi_constructor("!", _tagged)


def parse_remarks(text: str) -> list[Remark]:
    """Remarks of a ``--remark-format=yaml`` file, in source order.

    The compiler writes every record twice and repeats reasons; records that agree in all, its own
    number included, are one remark, and a reason is said once.

    Raises:
        ToolchainError: The text is not such a file.
    """
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
        records = {_record(document) for document in documents if document}
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise ToolchainError(
            f"the compiler's remarks cannot be read ({' '.join(str(error).split())[:120]})"
        ) from error
    merged = Counter(record[1:] for record in records)
    return [
        Remark(file=file, line=line, kind=kind, category=category, message=message, count=count)
        for (file, line, kind, category, message), count in sorted(merged.items())
    ]


def _record(document: dict[str, Any]) -> tuple[int, str, int, Kind, str, str]:
    arguments: dict[str, list[Any]] = {}
    for argument in document["Args"]:
        for key, value in argument.items():
            arguments.setdefault(key, []).append(value)
    where = document.get("DebugLoc") or {}
    return (
        int(arguments["RemarkId"][0]),
        relative_source(str(where.get("File", "unknown"))),
        int(where.get("Line", 0)),
        _KINDS[document["kind"]],
        str(document["Pass"]).lower(),
        _message(arguments),
    )


def _message(arguments: dict[str, list[Any]]) -> str:
    text = str(arguments["Remark"][0]).rstrip(".")
    if instruction := arguments.get("Instruction"):
        text += f": {instruction[0]}"
    shape = arguments.get("Shape")
    # An FMA fallback has the meaningless shape [1, 1, 1].
    if shape and str(shape[0]) != "[1, 1, 1]":
        text += f" {shape[0]}"
    reasons = dict.fromkeys(_LOCATION.sub("", str(r)).strip() for r in arguments.get("Reason", ()))
    return f"{text} ({'; '.join(reasons)})" if reasons else text


@functools.cache
def _roots() -> tuple[tuple[Path, str], ...]:
    """Folders that source paths are shown relative to, and what stands for each."""
    import mla_var3

    package = Path(mla_var3.__file__).resolve().parent
    entries = {Path(entry).resolve() for entry in sys.path if entry and Path(entry).is_dir()}
    # The innermost folder of sys.path wins, so that site-packages beats the prefix around it; an
    # environment inside the checkout comes before the checkout.
    imports = sorted(entries, key=lambda entry: (-len(entry.parts), str(entry)))
    installed = [e for e in imports if e.name in ("site-packages", "dist-packages")]
    checkout = package.parents[1]
    own = [checkout] if (checkout / "pyproject.toml").is_file() else []
    return (
        ((package / "kernel").resolve(), "kernels"),
        (package, "src/mla_var3"),
        *((folder, "") for folder in (*installed, *own, *imports)),
    )


@functools.cache
def relative_source(path: str) -> str:
    """The path as the project names it: ``kernels/...``, ``src/mla_var3/...``, ``tests/...``.

    Files outside the project are shown relative to the folder they are imported from, or by name
    alone, so that facts do not depend on where things are installed.
    """
    given = Path(path)
    if not given.is_absolute():
        return given.as_posix()
    resolved = given.resolve()
    for root, stands_for in _roots():
        if resolved.is_relative_to(root):
            return (Path(stands_for) / resolved.relative_to(root)).as_posix()
    return resolved.name
