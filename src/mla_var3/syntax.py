"""Searching Python sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements below a node, outer ones first; expressions, most of a file, are passed by."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for inner in getattr(node, field, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from statements(inner)
