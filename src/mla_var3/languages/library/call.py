"""Hash of the source code that makes a library call, for versions that compile no kernel.

Takes the texts of a version's source files and follows its method ``plan`` to all that it uses;
comments, stage names and cost functions do not count. It stands in place of a kernel fingerprint.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from mla_var3 import syntax
from mla_var3.evidence.fingerprint import digest

#: The method that binds tensors to the call.
BINDS = "plan"
#: Arguments that say what tables call a stage and what its work is, not how it is called.
DESCRIBING = ("_name", "cost")


def call_digest(texts: Sequence[str]) -> str:
    """Digest of the call that sources make, comments and what only describes it aside.

    Args:
        texts: The sources of a version.
    """
    known = dict(_definitions(texts))
    open_, places = [BINDS], dict[str, int]()
    while open_:
        name = open_.pop(0)
        if name in known and name not in places:
            places[name] = len(places)
            open_ += _names(known[name])
    # What they are called is of no account, the order in which they are reached is.
    named = _Numbered(places)
    return digest(ast.unparse(named.visit(known[name])) for name in places)


def _definitions(texts: Sequence[str]) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, methods and constants of sources by name; of two, the later."""
    for text in texts:
        tree = _Stripped().visit(ast.parse(syntax.bare(text)))
        bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
        for statement in (each for body in bodies for each in body):
            match statement:
                case ast.FunctionDef(name=name):
                    yield name, statement
                case ast.Assign(targets=[ast.Name(id=name)]):
                    yield name, statement


class _Stripped(ast.NodeTransformer):
    """Calls without the arguments that only describe a stage."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [each for each in node.keywords if each.arg not in DESCRIBING]
        return self.generic_visit(node)


class _Numbered(ast.NodeTransformer):
    """Definitions under numbers in place of their names."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self.places = places

    def _of(self, name: str) -> str:
        return f"_{self.places[name]}" if name in self.places else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._of(node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self._of(node.attr)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._of(node.name)
        return self.generic_visit(node)


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
