"""Reads and writes annotated CUTLASS examples, ``knowledge/examples/<id>.toml``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mla_var3 import inputs
from mla_var3.errors import KnowledgeError
from mla_var3.examples.model import Example
from mla_var3.paths import write_atomic

FOLDER = "knowledge/examples"
#: Folders of the tree that say nothing about an example.
_SILENT = {"cute", "kernel", "tutorial", "experimental", "dsl_tutorials"}


def id_of(path: str) -> str:
    """Id of an example from its path below the folder of the examples.

    ``cute/hopper/kernel/dense_gemm/dense_gemm.py`` is ``hopper-dense-gemm``.
    """
    parts = path.removesuffix(".py").split("/")
    kept = [part for part in parts[:-1] if part not in _SILENT] + parts[-1:]
    words: list[str] = []
    for part in kept:
        name = part.replace("_", "-").lower()
        if words and name.startswith(words[-1]):
            words.pop()
        words.append(name)
    return "-".join(words)


def read(root: Path) -> dict[str, Example]:
    """All examples of a checkout by id; empty when there are none.

    Raises:
        KnowledgeError: A file is not sound.
    """
    found = {}
    for file in sorted((root / FOLDER).glob("*.toml")):
        with inputs.faults_as(KnowledgeError, f"{FOLDER}/{file.name}"):
            found[file.stem] = Example.model_validate(inputs.read_toml(file))
    return found


def write(root: Path, name: str, example: Example) -> bool:
    """Write one example; returns whether its file changed."""
    file = root / FOLDER / f"{name}.toml"
    text = to_toml(example.model_dump(mode="json", exclude_none=True, exclude_defaults=True))
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        return False
    write_atomic(file, text)
    return True


def to_toml(content: Mapping[str, Any], prefix: str = "") -> str:
    """A mapping of plain values, mappings and lists of mappings as TOML, values first."""
    plain = {key: value for key, value in content.items() if not _is_table(value)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    text = "".join(f"{line}\n" for line in lines)
    for key, value in content.items():
        if isinstance(value, Mapping):
            text += f"\n[{prefix}{key}]\n" + to_toml(value, f"{prefix}{key}.")
        elif _is_table(value):
            for row in value:
                text += f"\n[[{prefix}{key}]]\n" + to_toml(row, f"{prefix}{key}.")
    return text


def _is_table(value: Any) -> bool:
    rows = isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
    return isinstance(value, Mapping) or rows


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # JSON's strings, numbers and booleans are TOML's; DEL alone is not allowed in one of TOML.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
