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
from pathlib import Path

from mla_var3.errors import PlanError
from mla_var3.runtime import registry
from mla_var3.runtime.definitions import (
    Import,
    Module,
    Name,
    names_stored,
    names_used,
    names_with_parts,
    read,
    resolved,
    with_bases,
)
from mla_var3.runtime.registry import Version

#: Folder of a language's building blocks, below its package.
KIT = "kit"


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
    module = read(path)
    if "Plan" not in module.own:
        raise PlanError(f"{path} defines no Plan")
    # The first walk tells what runs, and so which bases stand in their heirs alone; the second one
    # also follows annotations, where such a base is called by its heir's name.
    first = _Walk(path, {})
    heirs = {base: heir for base, heir in first.taken_in.items() if base not in first.texts}
    called = {at: at.name for at in first.texts} | heirs
    walk = _Walk(path, called, annotations=True)
    # What annotations alone reach may be named as others are, which shows once it has been reached.
    if more := {at: at.name for at in walk.texts if at not in called}:
        walk = _Walk(path, called | more, annotations=True)
    return "\n".join([module.doc, "", *_head(walk.imports, walk.texts), *walk.body()]) + "\n"


def is_composed(path: Path) -> bool:
    """Whether the module of a version takes building blocks from its language's kit."""
    package = path.parents[3]
    return any(found.is_relative_to(package / KIT) for found in registry.reached([path]))


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
        self._asked: set[Name] = set()
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
        if at in self._asked:
            return
        self._asked.add(at)
        at = resolved(at)
        module = read(at.path)
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
            for name in names_used(part, annotations):
                self.visit(Name(module.path, name))

    def _stands_in_heir(self, at: Name) -> bool:
        return at in self.called and self.called[at] != at.name and not self._is_namesake(at)

    def _is_namesake(self, at: Name) -> bool:
        return self.called[at] == f"{at.name}_of_{at.path.stem}"

    def _text(self, module: Module, node: ast.AST) -> list[str]:
        """A statement's lines, with the names that definitions have in this text."""
        names = {
            *names_used(node, annotations=True),
            getattr(node, "name", ""),
            *names_stored(node),
        }
        renamed = {
            name: self.called[at]
            for name in names
            if name
            and (at := resolved(Name(module.path, name)))
            and self.called.get(at, name) != name
        }
        lines = module.text(node)
        if renamed:  # All at once: what one is called here may be what another was.
            old = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, renamed))})\b(?!=[^=])")
            lines = [old.sub(lambda found: renamed[found[1]], line) for line in lines]
        return lines


def _early(part: ast.AST) -> list[ast.AST]:
    """What a statement needs as it is executed; the body of a function runs later."""
    if isinstance(part, ast.FunctionDef):
        return [*part.decorator_list, *part.args.defaults, *filter(None, part.args.kw_defaults)]
    return [part]


class _Whole:
    """A class with what it inherits from other classes below ``kernels/``."""

    def __init__(
        self, at: Name, node: ast.ClassDef, text_of: Callable[[Module, ast.AST], list[str]]
    ) -> None:
        self.at, self.node, self.text_of = at, node, text_of
        chain = with_bases(at, node)
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
            (read(base.path), member) for base, member in self.members.values()
        ]
        for base, node in self.chain:
            parts += [(read(base.path), d) for d in node.decorator_list]
        return parts + [(module, base) for module, base in self._outer()]

    def _outer(self) -> list[tuple[Module, ast.expr]]:
        """Bases that are not taken in."""
        own = set(self.bases)
        return [
            (read(at.path), base)
            for at, node in self.chain
            for base in node.bases
            if not (isinstance(base, ast.Name) and resolved(Name(at.path, base.id)) in own)
        ]

    def text(self, called: str) -> list[str]:
        """Its lines, under that name."""
        module = read(self.at.path)
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
                lines = read(base.path).lines
                return [lines[d.lineno - 1] for d in node.decorator_list]
        return []

    def _member(self, name: str, base: Name, member: ast.stmt) -> list[str]:
        """A member's lines; what it calls by ``super`` has a name of its own here."""
        lines = self.text_of(read(base.path), member)
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


def _calls_a_base(chain: Sequence[tuple[Name, ast.ClassDef]]) -> bool:
    """Whether a class calls a method of a base by the base's name."""
    bases = {at.name for at, _ in chain[1:]}
    return any(not bases.isdisjoint(names_with_parts(node)) for _, node in chain)


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
