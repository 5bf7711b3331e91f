"""Finds which of our kernel versions use a name, from their sources without importing them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable
from pathlib import Path

from mla_var3.blobs import once_per_content
from mla_var3.knowledge.references import used
from mla_var3.knowledge.references.model import Head
from mla_var3.runtime.registry import Version


def by_name(head: Head, versions: Iterable[Version]) -> dict[str, list[Version]]:
    """The versions whose sources, those of the kit that they import among them, use each name.

    Args:
        head: The reference.
        versions: Versions of any language.
    """
    names = _reader(next(iter(head.aliases.values())).partition(".")[0])
    found: dict[str, list[Version]] = {}
    for version in versions:
        if version.language == head.language:
            dotted = {name for file in version.source_files() for name in names(file)}
            for key in {key for name in dotted for key in used.spelled(name, head.aliases)}:
                found.setdefault(key, []).append(version)
    return found


@functools.cache
def _reader(top: str) -> Callable[[Path], set[str]]:
    """What reads the names of a package from a file, once per content."""
    return once_per_content(
        lambda file: used.of_tree(ast.parse(file.read_text(encoding="utf-8")), top)
    )
