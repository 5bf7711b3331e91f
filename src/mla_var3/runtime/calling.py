"""Tells which functions of its sources a version calls: those that names lead to from its ``Plan``.

A file that a version imports holds more than it calls: methods that it overrides, and functions
for others. Of a class a method counts once something that is called names it as an attribute, and
of its bases the nearest one. So a name that two classes share counts for both, and so does a call
under a condition that is never true.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from pathlib import Path

from mla_var3.errors import PlanError
from mla_var3.runtime import registry
from mla_var3.runtime.definitions import (
    Name,
    names_stored,
    parts_of,
    read,
    resolved,
    with_bases,
)
from mla_var3.runtime.registry import Version

#: A function by its file and the line of its ``def``.
Function = tuple[Path, int]
#: A class by its place, with its definition.
Class = tuple[Name, ast.ClassDef]


def called(version: Version) -> frozenset[Function]:
    """The functions that a version calls, those within others included.

    Raises:
        PlanError: A source is not Python, or the version's module defines no ``Plan``.
    """
    files = registry.reached([version.path])
    return _called(tuple((file, file.stat().st_mtime_ns) for file in files), version.path)


@functools.lru_cache(maxsize=256)
def _called(_changed: tuple[Function, ...], path: Path) -> frozenset[Function]:
    if "Plan" not in read(path).own:
        raise PlanError(f"{path} defines no Plan")
    calls = _Calls()
    calls.name(Name(path, "Plan"))
    # The tools that run a plan may ask for any of its members.
    calls.attributes |= {name for members in calls.members.values() for name in members}
    calls.follow()
    return frozenset(calls.functions)


class _Calls:
    """Follows names and attributes from what is called to what that calls.

    Attributes:
        functions: Those that are called.
        attributes: Names that something called takes from an object.
        members: By class the nearest member of each name, with the class that it stands in.
    """

    def __init__(self) -> None:
        self.functions: set[Function] = set()
        self.attributes: set[str] = set()
        self.members: dict[Name, dict[str, tuple[Name, ast.stmt]]] = {}
        self._chains: dict[Name, list[Class]] = {}
        self._done: set[tuple[Name, str] | tuple[Name | None, Name, int]] = set()

    def follow(self) -> None:
        """Take members of classes until no further one is named."""
        before = -1
        while before < len(self._done):
            before = len(self._done)
            for at, members in list(self.members.items()):
                for name, (base, member) in members.items():
                    if name in self.attributes or name.startswith("__"):
                        self._take(base, member, at)

    def name(self, at: Name) -> None:
        """Take what a name stands for."""
        at = resolved(at)
        node = read(at.path).own.get(at.name)
        if isinstance(node, ast.ClassDef):
            self._class(at, node)
        elif node is not None:
            self._take(at, node, None)

    def _class(self, at: Name, node: ast.ClassDef) -> None:
        if at in self.members:
            return
        chain = self._chains[at] = with_bases(at, node)
        self.members[at] = _nearest(chain)
        for base, definition in chain:
            for part in (*definition.decorator_list, *definition.bases):
                if not (isinstance(part, ast.Name) and self._is_class(Name(base.path, part.id))):
                    self._uses(base, part, at)
        for base, member in self.members[at].values():
            if not isinstance(member, ast.FunctionDef):
                self._uses(base, member, at)

    @staticmethod
    def _is_class(at: Name) -> bool:
        at = resolved(at)
        return isinstance(read(at.path).own.get(at.name), ast.ClassDef)

    def _take(self, at: Name, node: ast.stmt, of: Name | None) -> None:
        """Take a function, or a statement, once for each class whose objects run it."""
        if (of, at, node.lineno) in self._done:
            return
        self._done.add((of, at, node.lineno))
        inner = (one for one in ast.walk(node) if isinstance(one, ast.FunctionDef))
        self.functions.update((at.path, one.lineno) for one in inner)
        self._uses(at, node, of)

    def _uses(self, at: Name, node: ast.AST, of: Name | None) -> None:
        """Take what a part of a source uses.

        Args:
            at: The definition that it stands in.
            node: The part.
            of: The class whose objects run it; None where none does.
        """
        chain = self._chains[of] if of else []
        for part in parts_of(node, annotations=False):
            if isinstance(part, ast.Attribute):
                if (bases := _asked(part.value, at, chain)) is None:
                    self.attributes.add(part.attr)
                elif found := _nearest(bases).get(part.attr):
                    self._take(*found, of)
            elif isinstance(part, ast.Name) and not _is_base(Name(at.path, part.id), chain):
                self.name(Name(at.path, part.id))


def _asked(value: ast.expr, at: Name, chain: Sequence[Class]) -> Sequence[Class] | None:
    """The bases that a member is asked of by name or by ``super``; None for an object's."""
    order = [base for base, _ in chain]
    match value:
        case ast.Name(id=name) if _is_base(Name(at.path, name), chain):
            return chain[order.index(resolved(Name(at.path, name))) :]
        case ast.Call(func=ast.Name(id="super")) if at in order:
            return chain[order.index(at) + 1 :]
    return None


def _is_base(at: Name, chain: Sequence[Class]) -> bool:
    return resolved(at) in [base for base, _ in chain]


def _nearest(chain: Sequence[Class]) -> dict[str, tuple[Name, ast.stmt]]:
    """By name the nearest member of a class and its bases."""
    found: dict[str, tuple[Name, ast.stmt]] = {}
    for base, definition in chain:
        for member in definition.body:
            names = (member.name,) if isinstance(member, ast.FunctionDef) else names_stored(member)
            for name in names:
                found.setdefault(name, (base, member))
    return found
