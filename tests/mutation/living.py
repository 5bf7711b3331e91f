"""How changed code takes the place of what lives: of functions, and of the tables of a module."""

from __future__ import annotations

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

#: File, name and line of a function.
Place = tuple[str, str, int]


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """What each code object inside one becomes in the other."""
    yield old, new
    left = _inner(new)
    for key, code in _inner(old).items():
        if key in left:
            yield from _pairs(code, left[key])


def _inner(code: CodeType) -> dict[tuple[str, int, int], CodeType]:
    """The code objects right inside one, by name, line, and which of those."""
    found: dict[tuple[str, int, int], CodeType] = {}
    for one in code.co_consts:
        if isinstance(one, CodeType):
            nth = sum(key[:2] == (one.co_name, one.co_firstlineno) for key in found)
            found[one.co_name, one.co_firstlineno, nth] = one
    return found


def recode(old: CodeType, new: CodeType) -> int:
    """Give every living function of a module its new code.

    A function is known by file, name and line; of several lambdas on a line by its code. Code
    objects are never hashed: the hash of one changes as it runs (Python 3.11).
    """
    known: dict[Place, list[tuple[CodeType, CodeType]]] = defaultdict(list)
    for before, after in _pairs(old, new):
        known[_place(before)].append((before, after))
    changed = 0
    for place, those in known.items():
        for one in living().get(place, ()):
            for before, after in those:
                if before != after and (len(those) == 1 or one.__code__ == before):
                    one.__code__ = after
                    changed += 1
                    break
    return changed


@cache
def living() -> dict[Place, list[FunctionType]]:
    """The functions that live, by file, name and line; of those that are made later none.

    To look for them takes longer than most tests, so that forks share what their parent has found.
    """
    gc.unfreeze()  # What imports froze is not listed.
    every = gc.get_objects()
    gc.freeze()  # Or it would be searched for garbage while this loop runs, and later.
    found = defaultdict(list)
    for one in every:
        if type(one) is FunctionType:
            found[_place(one.__code__)].append(one)
    return found


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def retable(path: Path, tree: ast.Module, name: str) -> int:
    """Give a module-level name its new value wherever the old one is known by this name."""
    home = next(m for m in _modules() if getattr(m, "__file__", None) == str(path))
    old, scope = vars(home)[name], dict(vars(home))
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and name in ast.unparse(
            statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        ):
            only = ast.Module([statement], [])
            exec(compile(only, str(path), "exec", dont_inherit=True), scope)
    new = scope[name]
    if isinstance(old, dict | list | set) and type(old) is type(new):
        old.clear()
        old.extend(new) if isinstance(old, list) else old.update(new)
        return 1
    if is_dataclass(old) and type(old) is type(new):  # Tables hold it too, and tests.
        for one in fields(old):
            object.__setattr__(old, one.name, getattr(new, one.name))
        return 1
    holders = [m for m in _modules() if vars(m).get(name) is old]
    for module in holders:
        setattr(module, name, new)
    return len(holders)


def _modules() -> list[Any]:
    return [m for n, m in list(sys.modules.items()) if n.startswith("mla_var3.")]
