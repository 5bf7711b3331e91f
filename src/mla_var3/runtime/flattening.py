"""Flattens a composed version into one file: its code and all that it uses below ``kernels/``.

A composed version says only where it differs; the flattened file has the whole code. Definitions
are followed by name from ``Plan``, and what is not reached is left out. A class takes in its bases,
each member once, the nearest one; a method that such a member calls by ``super`` stays beside it
under a name of its own. Text is kept as it is written, with its comments.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mla_var3.errors import PlanError
from mla_var3.paths import kernels_dir
from mla_var3.runtime import registry
from mla_var3.runtime.registry import PACKAGE, Version

#: Folder of a language's building blocks, below its package.
KIT = "kit"

#: Statements of which the names are kept: those of all kernels, which versions share.
_NODES = 1 << 16

Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Import:
    """A name that comes from outside of ``kernels/``.

    Attributes:
        line: The statement that imports it alone.
        typing_only: Whether it stands under ``if TYPE_CHECKING``.
    """

    line: str
    typing_only: bool


@dataclass
class Module:
    """A source file, its definitions, and where its other names come from."""

    path: Path
    lines: list[str]
    doc: str
    own: dict[str, Definition] = field(default_factory=dict)
    inner: dict[str, tuple[Path, str]] = field(default_factory=dict)
    outer: dict[str, Import] = field(default_factory=dict)

    def text(self, node: ast.AST) -> list[str]:
        """A statement's lines, with decorators and the comments right above it."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])  # type: ignore[attr-defined]
        while re.match(r"\s*#(?! -)", self.lines[first - 2]):
            first -= 1
        return self.lines[first - 1 : node.end_lineno]  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Name:
    """A definition by its module and name."""

    path: Path
    name: str


def flatten(version: Version) -> str:
    """The version as one file that needs nothing else below ``kernels/``.

    Raises:
        PlanError: Its module is not Python, or defines no ``Plan``.
    """
    return flatten_file(version.path)


def flatten_file(path: Path) -> str:
    """The same for the module of a version; see ``flatten``."""
    # A site shows a version by itself and beside both neighbors.
    return _flattened(
        tuple((file, file.stat().st_mtime_ns) for file in registry.reached([path])), path
    )


@functools.lru_cache(maxsize=256)
def _flattened(_changed: tuple[tuple[Path, int], ...], path: Path) -> str:
    module = _read(path)
    if "Plan" not in module.own:
        raise PlanError(f"{path} defines no Plan")
    # The first walk tells what runs, and so which bases stand in their heirs alone; the second one
    # also follows annotations, where such a base is called by its heir's name.
    first = _Walk(path, {})
    heirs = {base: heir for base, heir in first.taken_in.items() if base not in first.texts}
    walk = _Walk(path, {at: at.name for at in first.texts} | heirs, annotations=True)
    return "\n".join([module.doc, "", *_head(walk.imports, walk.texts), *walk.body()]) + "\n"


def is_composed(path: Path) -> bool:
    """Whether the module of a version takes building blocks from its language's kit."""
    package = path.parents[3]
    return any(found.is_relative_to(package / KIT) for found in registry.reached([path]))


# -- modules ---------------------------------------------------------------------------------------


def _read(path: Path) -> Module:
    return _parsed(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _parsed(path: Path, _changed: int) -> Module:
    text = path.read_text(encoding="utf-8")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise PlanError(f"{path} is not Python: {error}") from error
    lines = text.split("\n")
    module = Module(path, lines, "\n".join(lines[: tree.body[0].end_lineno]))
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                module.own[name] = node
            case ast.Assign() | ast.AnnAssign():
                module.own |= dict.fromkeys(_stored(node), node)
            case ast.Import() | ast.ImportFrom():
                _take(module, node, False)
            case ast.If(body=body):
                for inner in body:
                    if isinstance(inner, ast.Import | ast.ImportFrom):
                        _take(module, inner, True)
    return module


@functools.lru_cache(maxsize=_NODES)
def _stored(node: ast.AST) -> tuple[str, ...]:
    return tuple(
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    )


def _take(module: Module, node: ast.Import | ast.ImportFrom, typing_only: bool) -> None:
    """Note where the names of an import come from."""
    for alias in node.names:
        name = alias.asname or alias.name
        as_other = f" as {alias.asname}" if alias.asname else ""
        if isinstance(node, ast.Import):
            line = f"import {alias.name}{as_other}"
            module.outer[name.split(".")[0]] = Import(line, typing_only)
        elif inner := _kernel_file(module.path, node):
            module.inner[name] = (inner, alias.name)
        else:
            line = f"from {node.module} import {alias.name}{as_other}"
            module.outer[name] = Import(line, typing_only)


def _kernel_file(path: Path, node: ast.ImportFrom) -> Path | None:
    """The file below ``kernels/`` that names are imported from; None where it is another."""
    parts = (node.module or "").split(".")
    if node.level:
        return path.parents[node.level - 1].joinpath(*filter(None, parts)).with_suffix(".py")
    if not (node.module or "").startswith(f"{PACKAGE}."):
        return None
    return kernels_dir().joinpath(*parts[len(PACKAGE.split(".")) :]).with_suffix(".py")


@functools.lru_cache(maxsize=_NODES)
def _names(node: ast.AST, annotations: bool) -> tuple[str, ...]:
    """Names that a statement uses, in the order of the text."""
    return tuple(_walked(node, annotations))


def _walked(node: ast.AST, annotations: bool) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") and not annotations:
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _walked(part, annotations)


# -- definitions -----------------------------------------------------------------------------------


class _Walk:
    """Definitions in the order in which they need each other.

    Args:
        path: The version's module, whose ``Plan`` needs them.
        called: What some of them are called in the text; one that is not defined there is the base
            of a class that takes it in.
        annotations: Whether what only annotations name is taken in too.
    """

    def __init__(self, path: Path, called: Mapping[Name, str], *, annotations: bool = False):
        self.called, self.annotations = dict(called), annotations
        self.taken_in: dict[Name, str] = {}
        self.imports: dict[str, Import] = {}
        self.texts: dict[Name, list[str]] = {}
        self._seen: set[Name] = set()
        self._rename_namesakes()
        self.visit(Name(path, "Plan"))

    def _rename_namesakes(self) -> None:
        """Of two definitions of one name the later also names its module."""
        names: set[str] = set()
        for at, name in self.called.items():
            if at.name == name and name in names:
                self.called[at] = f"{name}_of_{at.path.stem}"
            names.add(name)

    def body(self) -> Iterator[str]:
        """Their text."""
        for text in self.texts.values():
            yield from ("", "") if re.match(r"@|def |class ", text[0]) else ("",)
            yield from text

    def visit(self, at: Name) -> None:
        """Take in a name and, before it, all that it needs."""
        at = _resolved(at)
        module = _read(at.path)
        if imported := module.outer.get(at.name):
            self.imports.setdefault(at.name, imported)
        node = module.own.get(at.name)
        if node is None or at in self._seen or self._stands_in_heir(at):
            return
        self._seen.add(at)
        whole = _Whole(at, node, self._text) if isinstance(node, ast.ClassDef) else None
        if whole:
            self.taken_in |= dict.fromkeys(whole.bases, at.name)
        used = whole.used() if whole else [(module, node)]
        self._visit_all((x, early) for x, part in used for early in _early(part))
        self.texts[at] = (
            whole.text(self.called.get(at, at.name)) if whole else self._text(module, node)
        )
        self._visit_all(used, self.annotations)

    def _visit_all(
        self, parts: Iterable[tuple[Module, ast.AST]], annotations: bool = False
    ) -> None:
        for module, part in parts:
            for name in _names(part, annotations):
                self.visit(Name(module.path, name))

    def _stands_in_heir(self, at: Name) -> bool:
        return at in self.called and self.called[at] != at.name and not self._is_namesake(at)

    def _is_namesake(self, at: Name) -> bool:
        return self.called[at] == f"{at.name}_of_{at.path.stem}"

    def _text(self, module: Module, node: ast.AST) -> list[str]:
        """A statement's lines, with the names that definitions have in this text."""
        lines = module.text(node)
        for name in {*_names(node, annotations=True), getattr(node, "name", ""), *_stored(node)}:
            at = _resolved(Name(module.path, name)) if name else None
            if at is not None and self.called.get(at, name) != name:
                new = self.called[at]
                lines = [re.sub(rf"(?<![\w.]){name}\b(?!=[^=])", new, line) for line in lines]
        return lines


def _early(part: ast.AST) -> list[ast.AST]:
    """What a statement needs as it is executed; the body of a function runs later."""
    if isinstance(part, ast.FunctionDef):
        return [*part.decorator_list, *part.args.defaults, *filter(None, part.args.kw_defaults)]
    return [part]


def _resolved(at: Name) -> Name:
    """Where a name is defined, or imported from outside of ``kernels/``."""
    while found := _read(at.path).inner.get(at.name):
        at = Name(*found)
    return at


class _Whole:
    """A class with what it inherits from other classes below ``kernels/``."""

    def __init__(
        self, at: Name, node: ast.ClassDef, text_of: Callable[[Module, ast.AST], list[str]]
    ) -> None:
        self.at, self.node, self.text_of = at, node, text_of
        chain = list(_chain(at, node))
        kept = not _calls_a_base(chain)
        self.chain = chain if kept else chain[:1]
        self.bases = [base for base, _ in self.chain[1:]]
        #: Member, its class and node, and the name that it has here.
        self.members: dict[str, tuple[Name, ast.stmt]] = {}
        for base, definition in reversed(self.chain):
            for member in definition.body:
                self._add(base, member)

    def _add(self, base: Name, member: ast.stmt) -> None:
        name = _member_name(member)
        if name is None:
            return
        old = self.members.get(name)
        if old is not None and isinstance(member, ast.FunctionDef) and _calls_super(member, name):
            self.members[_aside(name, old[0])] = old
        self.members[name] = (base, member)

    def used(self) -> list[tuple[Module, ast.AST]]:
        """What the class is made of, with the module of each part."""
        parts: list[tuple[Module, ast.AST]] = [
            (_read(base.path), member) for base, member in self.members.values()
        ]
        for base, node in self.chain:
            parts += [(_read(base.path), d) for d in node.decorator_list]
        return parts + [(module, base) for module, base in self._outer()]

    def _outer(self) -> list[tuple[Module, ast.expr]]:
        """Bases that are not taken in."""
        own = set(self.bases)
        return [
            (_read(at.path), base)
            for at, node in self.chain
            for base in node.bases
            if not (isinstance(base, ast.Name) and _resolved(Name(at.path, base.id)) in own)
        ]

    def text(self, called: str) -> list[str]:
        """Its lines, under that name."""
        module = _read(self.at.path)
        if len(self.chain) == 1:
            return self.text_of(module, self.node)
        bases = dict.fromkeys(ast.unparse(base) for _, base in self._outer())
        head = f"class {called}({', '.join(bases)}):" if bases else f"class {called}:"
        lines = [*self._decorators(), head, *_docstring(module, self.node)]
        for name, (base, member) in self.members.items():
            lines += [""] if isinstance(member, ast.FunctionDef) else []
            lines += self._member(name, base, member)
        return lines

    def _decorators(self) -> list[str]:
        """Those of the nearest class that has any."""
        for base, node in self.chain:
            if node.decorator_list:
                lines = _read(base.path).lines
                return [lines[d.lineno - 1] for d in node.decorator_list]
        return []

    def _member(self, name: str, base: Name, member: ast.stmt) -> list[str]:
        """A member's lines; what it calls by ``super`` has a name of its own here."""
        lines = self.text_of(_read(base.path), member)
        original = _member_name(member)
        if name != original:
            lines = [line.replace(f"def {original}(", f"def {name}(", 1) for line in lines]
        before = self._before(base, str(original))
        if before is None:
            return lines
        return [line.replace(f"super().{original}(", f"self.{before}(") for line in lines]

    def _before(self, base: Name, name: str) -> str | None:
        """What the next member of that name in the chain is called here."""
        order = [at for at, _ in self.chain]
        for other in order[order.index(base) + 1 :]:
            if _aside(name, other) in self.members:
                return _aside(name, other)
        return None


def _aside(name: str, base: Name) -> str:
    """What a method is called that another one of its name calls by ``super``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", base.name).lower()
    return f"{name.strip('_')}_of_{words}"


def _chain(at: Name, node: ast.ClassDef) -> Iterator[tuple[Name, ast.ClassDef]]:
    """A class and its bases below ``kernels/``, nearest first."""
    yield at, node
    for base in node.bases:
        if isinstance(base, ast.Name):
            where = _resolved(Name(at.path, base.id))
            found = _read(where.path).own.get(where.name)
            if isinstance(found, ast.ClassDef):
                yield from _chain(where, found)


def _calls_a_base(chain: Sequence[tuple[Name, ast.ClassDef]]) -> bool:
    """Whether a class calls a method of a base by the base's name."""
    bases = {at.name for at, _ in chain[1:]}
    return any(
        isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id in bases
        for _, node in chain
        for part in ast.walk(node)
    )


def _calls_super(member: ast.FunctionDef, name: str) -> bool:
    return any(
        isinstance(part, ast.Attribute)
        and part.attr == name
        and isinstance(part.value, ast.Call)
        and isinstance(part.value.func, ast.Name)
        and part.value.func.id == "super"
        for part in ast.walk(member)
    )


def _member_name(node: ast.stmt) -> str | None:
    match node:
        case ast.FunctionDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name), *_]):
            return name
    return None


def _docstring(module: Module, node: ast.ClassDef) -> list[str]:
    first = node.body[0]
    return module.lines[first.lineno - 1 : first.end_lineno] if ast.get_docstring(node) else []


def _head(imports: dict[str, Import], defined: Iterable[Name]) -> Iterator[str]:
    """Imports, those for type checkers last; a definition of the same name replaces one."""
    own = {at.name for at in defined}
    used = {found for name, found in imports.items() if name not in own}
    plain = sorted(x.line for x in used if not x.typing_only)
    typing = sorted({x.line for x in used if x.typing_only} - set(plain))
    yield from ("from __future__ import annotations", "")
    yield from sorted({*plain, *(["from typing import TYPE_CHECKING"] if typing else [])})
    if typing:
        yield from ("", "if TYPE_CHECKING:", *(f"    {line}" for line in typing))
