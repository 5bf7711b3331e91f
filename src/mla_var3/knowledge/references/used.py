"""Counts the names of a package that CUTLASS's examples use, from sources that are not run."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path


def names(folder: Path, package: str) -> Counter[str]:
    """How many files use each dotted name of a package, as far as the source spells it.

    Args:
        folder: Holds Python files.
        package: Its first part, such as ``cutlass``.
    """
    found: Counter[str] = Counter()
    for file in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        found.update(of_tree(tree, package))
    return found


def of_tree(tree: ast.Module, package: str) -> set[str]:
    """The dotted names of a package that a file uses."""
    return set(_dotted(tree, dict(_imported(tree, package))))


def _imported(tree: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    """What a name of the file stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == package:
                    yield (alias.asname, alias.name) if alias.asname else (package, package)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            if module.partition(".")[0] == package:
                yield from ((it.asname or it.name, f"{module}.{it.name}") for it in node.names)


def _dotted(node: ast.AST, known: Mapping[str, str]) -> Iterator[str]:
    """Chains of attributes that begin with a name of the package, each as long as it is."""
    parts, inner = [], node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name) and inner.id in known:
        yield ".".join([known[inner.id], *reversed(parts)])
        return
    for child in ast.iter_child_nodes(node):
        yield from _dotted(child, known)


def is_public(dotted: str) -> bool:
    """Whether no part of a name says that it is private."""
    return not any(part.startswith("_") and part != "__version__" for part in dotted.split("."))


def spelled(dotted: str, aliases: Mapping[str, str]) -> list[str]:
    """What a dotted name may be called in a reference: whole, and without its last parts.

    Args:
        dotted: Such as ``cutlass.cute.arch.mbarrier_init``.
        aliases: Modules by the first part of the names.
    """
    for alias, path in sorted(aliases.items(), key=lambda item: -len(item[1])):
        if dotted.startswith(f"{path}."):
            rest = dotted.removeprefix(f"{path}.").split(".")
            return [".".join([alias, *rest[:end]]) for end in range(len(rest), 0, -1)]
    return []
