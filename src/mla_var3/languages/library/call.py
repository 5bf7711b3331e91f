"""The call that a design makes of a library: what ``plan`` and all that it names say."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mla_var3 import syntax
from mla_var3.evidence.fingerprint import digest

#: The method that binds tensors to the call.
BINDS = "plan"


def call_digest(texts: Sequence[str]) -> str:
    """Digest of the call that sources make, comments and what only describes it aside.

    Args:
        texts: The sources of a version.
    """
    known = dict(_definitions(texts))
    open_, reached = [BINDS], set()
    while open_:
        name = open_.pop()
        if name in known and name not in reached:
            reached.add(name)
            open_ += _names(known[name])
    return digest(ast.unparse(known[name]) for name in sorted(reached))


def _definitions(texts: Sequence[str]) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, methods and constants of sources by name; of two, the later."""
    for text in texts:
        tree = ast.parse(syntax.bare(text))
        bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
        for statement in (each for body in bodies for each in body):
            match statement:
                case ast.FunctionDef(name=name):
                    yield name, statement
                case ast.Assign(targets=[ast.Name(id=name)]):
                    yield name, statement


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
