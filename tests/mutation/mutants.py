"""Small wrong changes of a module, one at a time, and how one takes the place of running code.

Neither mutmut 3.8.1 nor cosmic-ray 8.7.0, which were tried: the one changes no decorated function,
and what the interpreter and the emulator do of each operation stands in decorated ones; the other
starts a process per mutant, which loads torch and both compilers before the first test.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .living import recode, retable

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: In text that becomes code: an operator between blanks.
_TEMPLATE = re.compile(r" (\+|-|\*|&|\||\^|<<|>>|<|<=|>|>=|==|!=) ")
_SIGNS = {
    "+": "-", "-": "+", "*": "+", "&": "|", "|": "&", "^": "|", "<<": ">>", ">>": "<<", "<": "<=",
    "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
}  # fmt: skip
#: Counts of which is asked only whether they have changed.
_CHANGES = {"progress", "changes"}
#: Arguments of zip and print: an assertion, and when text is written.
_NOTHING_DEPENDS_ON = {"strict", "flush"}
#: Decorators that keep results.
_CACHES = {"cache", "lru_cache"}
#: Where text is made that runs.
_WRITES_CODE = "emulator/lower/"


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        file: The module, below the package.
        where: The function, or the name of a module, that holds it.
        change: What becomes what.
        nth: Which of those that read the same there.
        line: Line of the change.
        site: Its place among the changes of the module.
    """

    file: str
    where: str
    change: str
    nth: int
    line: int = field(compare=False)
    site: int = field(compare=False)

    @property
    def key(self) -> str:
        """Names it also after lines have moved."""
        return f"{self.file} {self.where}: {self.change}" + (f" #{self.nth}" if self.nth else "")


@dataclass(frozen=True)
class _Site:
    """A node in its parent, and what takes its place."""

    parent: Any
    place: tuple[str, int | None]
    node: ast.AST
    new: ast.AST
    where: str

    def put(self, node: ast.AST) -> None:
        name, at = self.place
        if at is None:
            setattr(self.parent, name, node)
        else:
            getattr(self.parent, name)[at] = node


class Module:
    """A module whose mutants can be listed and put to work.

    Args:
        path: Its source.
        file: How it is called.
    """

    def __init__(self, path: Path, file: str) -> None:
        self.path, self.file = path, file
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self._sites = list(_sites(self.tree, "", file.startswith(_WRITES_CODE)))

    def mutants(self) -> list[Mutant]:
        """All of them, in the order of the source."""
        seen: Counter[tuple[str, str]] = Counter()
        found = []
        for number, site in enumerate(self._sites):
            change = _change(site)
            found.append(
                Mutant(self.file, site.where, change, seen[site.where, change], _line(site), number)
            )
            seen[site.where, change] += 1
        return found

    def kept(self, where: str) -> str | None:
        """The name of a table, or of a function whose results are kept; None for all else."""
        if where.startswith("="):
            return where[1:]
        scope: ast.AST = self.tree
        for part in where.split("."):
            scope = next(
                node
                for node in ast.iter_child_nodes(scope)
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part
            )
        kept = isinstance(scope, ast.FunctionDef) and any(
            _CACHES & {n.id if isinstance(n, ast.Name) else n.attr}
            for decorator in scope.decorator_list
            for n in ast.walk(decorator)
            if isinstance(n, ast.Name | ast.Attribute)
        )
        return where if kept else None

    def readers(self, name: str) -> list[int]:
        """Lines of functions that name a table or a function, of this module or another."""
        last = name.rpartition(".")[2]
        return [
            node.lineno
            for function in self._functions
            for node in ast.walk(function)
            if (isinstance(node, ast.Name) and node.id == name)
            or (
                isinstance(node, ast.Attribute)
                and node.attr == last
                and (last == name or ast.unparse(node) == name)
            )
        ]

    @cached_property
    def _functions(self) -> list[ast.FunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]

    def apply(self, mutant: Mutant) -> int:
        """Let every function of the running module do what the mutant does.

        Returns:
            How many functions and tables changed; none where nothing that lives holds the change.
        """
        site = self._sites[mutant.site]
        before = compile(self.tree, str(self.path), "exec", dont_inherit=True)
        site.put(_in_place(site))
        try:
            if site.where.startswith("="):
                return retable(self.path, self.tree, site.where[1:])
            after = compile(self.tree, str(self.path), "exec", dont_inherit=True)
        finally:
            site.put(site.node)
        return recode(before, after)


def _sites(tree: ast.AST, where: str, writes_code: bool) -> Iterator[_Site]:
    """The changes of what runs when something is called, and of the tables of a module."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef():
                name = f"{where}.{node.name}".lstrip(".")
                for at, statement in enumerate(node.body):
                    if not _is_docstring(statement):
                        yield from _changes(node, ("body", at), name, writes_code)
            case ast.ClassDef():
                yield from _sites(node, f"{where}.{node.name}".lstrip("."), writes_code)
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())
            ) if not where:
                yield from _changes(node, ("value", None), f"={name}", writes_code)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(
    parent: ast.AST, place: tuple[str, int | None], where: str, writes_code: bool
) -> Iterator[_Site]:
    """The changes of one node and of all below it."""
    name, at = place
    node = getattr(parent, name) if at is None else getattr(parent, name)[at]
    if _only_counts(node):
        return
    for new in _replacements(node):
        yield _Site(parent, place, node, ast.copy_location(new, node), where)
    if isinstance(node, ast.JoinedStr | ast.Constant):
        if writes_code:
            yield from _texts(parent, place, node, where)
        if isinstance(node, ast.Constant):
            return
    if isinstance(node, ast.UnaryOp) and _is_reshape(parent):
        return  # Every negative size is the unknown one.
    for child_place in _places(node):
        yield from _changes(node, child_place, where, writes_code)


def _in_place(site: _Site) -> ast.AST:
    """What stands there instead; it names what stood there, without running it.

    What names other variables of the function around it cannot take the place of what lives.
    """
    match site.node, site.new:
        case ast.Expr(value=was), ast.Pass():
            new: ast.AST = ast.Expr(_unrun(was))
        case ast.Return(value=ast.expr() as was), ast.Return():
            none = ast.Constant(None)
            new = ast.Return(ast.BoolOp(ast.And(), [_unrun(was), none]))
        case _:
            return site.new
    if any(isinstance(n, ast.Lambda | ast.Yield | ast.YieldFrom) for n in ast.walk(was)):
        return site.new
    return ast.fix_missing_locations(ast.copy_location(new, site.node))


def _unrun(node: ast.expr) -> ast.Lambda:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, node)


def _only_counts(node: ast.AST) -> bool:
    """Whether a statement adds to a count of which is asked only whether it has changed."""
    match node:
        case ast.AugAssign(target=ast.Attribute(attr=name)):
            return name in _CHANGES
    return False


def _is_reshape(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="reshape")):
            return True
    return False


def _places(node: ast.AST) -> Iterator[tuple[str, int | None]]:
    """Where a node's children stand, but for types, the text of errors, and what runs as it is."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "args") and not isinstance(node, ast.Call):
            continue
        if name in ("decorator_list", "format_spec") or isinstance(node, ast.Raise | ast.Assert):
            continue
        if isinstance(node, ast.keyword) and node.arg in _NOTHING_DEPENDS_ON:
            continue
        if isinstance(value, ast.AST):
            yield name, None
        elif isinstance(value, list):
            yield from ((name, at) for at, item in enumerate(value) if isinstance(item, ast.AST))


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What an operator, a number or a statement is changed to."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            yield _with(node, ops=[_COMPARISONS[type(op)]()])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OPERATORS:
            yield _with(node, op=_OPERATORS[type(op)]())
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield copy.copy(node.operand)  # Its place is set, and that of the tree's own stays.
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test) if isinstance(
            test, ast.Name | ast.Attribute | ast.Call
        ):
            yield _with(node, test=ast.copy_location(ast.UnaryOp(ast.Not(), test), test))
        case ast.Return(value=ast.expr() as value) if not _is_false(value):
            yield ast.Return(ast.copy_location(ast.Constant(None), value))
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Call(func=ast.Name(id=name)) if name in _NAMES:
            yield _with(node, func=ast.copy_location(ast.Name(_NAMES[name], ast.Load()), node))


def _texts(
    parent: ast.AST, place: tuple[str, int | None], node: ast.AST, where: str
) -> Iterator[_Site]:
    """Changes of an operator in a text that is code."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return
    for found in _TEMPLATE.finditer(node.value):
        start, end = found.span(1)
        text = node.value[:start] + _SIGNS[found[1]] + node.value[end:]
        yield _Site(parent, place, node, ast.copy_location(ast.Constant(text), node), where)


def _with(node: ast.AST, **fields: Any) -> Any:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _is_false(node: ast.expr) -> bool:
    """Whether it is None, or False, for which None would do as well."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _change(site: _Site) -> str:
    """What becomes what, in one short line."""
    old, new = (" ".join(ast.unparse(node).split()) for node in (site.node, site.new))
    if isinstance(site.node, ast.If):
        old, new = old.split(":")[0], new.split(":")[0]
    if isinstance(site.node, ast.Constant):  # Alone it says little.
        old = f"{old} in {' '.join(ast.unparse(site.parent).split())}"
    return f"{old[:100]} -> {new[:100]}"


def _line(site: _Site) -> int:
    """The line that runs: a jump alone behind a test has none, since the test itself jumps."""
    if isinstance(site.node, ast.Break | ast.Continue) and isinstance(site.parent, ast.If):
        return site.parent.test.lineno
    return int(getattr(site.node, "lineno", None) or site.parent.lineno)
