"""Describes public names of an installed package (kind, signature, members) by ``inspect``.

References of cuTile and the CuTe DSL are compared with these.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mla_var3.errors import ToolchainError

#: Parameters that DSLs add for themselves; nobody passes them.
OWN = frozenset({"loc", "ip"})
#: Annotations of which nothing is said.
_UNSAID = OWN | {"return"}


class _Word(str):
    """Text that Python shows as it is: a default that has no literal."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class PublicName:
    """A public name of a package.

    Attributes:
        kind: ``function``, ``class``, ``enum`` or ``value``.
        signature: Parameters as they are written, without the package's own; empty for values.
        members: Members of an enum, public methods of a class with their parameters.
        choices: What a parameter takes where its annotation says, ``sem: "relaxed", "release"``, or
            the enum whose members it takes, ``a_major: OperandMajorMode``.
    """

    kind: str
    signature: str = ""
    members: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


def read(found: Any) -> PublicName:
    """What there is to say of an object without a word of its author."""
    if inspect.isclass(found) and issubclass(found, enum.Enum):
        return PublicName("enum", members=tuple(found.__members__))
    if inspect.isclass(found):
        own = found.__init__
        return PublicName("class", signature(found), tuple(_methods(found)), choices(own))
    if typing.get_origin(found) is not None:  # An annotation.
        return PublicName("value")
    if inspect.isroutine(found) or (callable(found) and signature(found)):
        return PublicName("function", signature(found), (), choices(found))
    return PublicName("value")


def signature(found: Any) -> str:
    """The parameters of a callable; empty where Python cannot tell them."""
    try:
        told = inspect.signature(found)
    except (TypeError, ValueError):
        return ""
    kept = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_shown(parameter.default))
        for parameter in told.parameters.values()
        if parameter.name not in OWN
    ]
    return str(inspect.Signature(kept))


def choices(found: Any) -> tuple[str, ...]:
    """What each parameter takes, by its annotation; of those that take anything nothing is said."""
    try:
        hints = typing.get_type_hints(found)
    except (NameError, TypeError, AttributeError):  # Names that only a type checker has.
        return ()
    told = ((name, list(_taken(hint))) for name, hint in hints.items() if name not in _UNSAID)
    return tuple(f"{name}: {', '.join(dict.fromkeys(taken))}" for name, taken in told if taken)


def _taken(hint: Any) -> Iterator[str]:
    """The values of literals and the names of enums in an annotation."""
    if typing.get_origin(hint) is typing.Literal:
        yield from (f'"{value}"' if isinstance(value, str) else repr(value)
                    for value in typing.get_args(hint))  # fmt: skip
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for part in typing.get_args(hint):
            yield from _taken(part)
    elif inspect.isclass(hint) and issubclass(hint, enum.Enum):
        yield hint.__name__


def _shown(default: Any) -> Any:
    """A default as source would have it: members of enums, classes and functions by name."""
    if default is inspect.Parameter.empty:
        return default
    if isinstance(default, enum.Enum):
        return _Word(f"{type(default).__name__}.{default.name}")
    if isinstance(default, type) or inspect.isroutine(default):
        return _Word(default.__name__ if default.__name__ != "<lambda>" else "...")
    if " at 0x" in repr(default) or repr(default).startswith("<"):
        return _Word(re.sub(r"<\w+ '(\w+)'>|<([\w.]+).*>", r"\1\2", repr(default)))
    return default


def _methods(found: type) -> Iterator[str]:
    """Public methods and properties that the class or a class of its package defines."""
    package = found.__module__.partition(".")[0]
    seen: dict[str, Any] = {}
    for base in found.__mro__:
        if base.__module__.partition(".")[0] == package:
            for name, member in vars(base).items():
                seen.setdefault(name, member)
    for name in sorted(seen):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(found, name)
        if isinstance(member, property):
            yield name
        elif callable(getattr(found, name, None)):
            yield name + signature(getattr(found, name))


def find(path: str, aliases: Mapping[str, str]) -> Any:
    """The object of a name, whose first part may stand for a module.

    Args:
        path: Such as ``cute.arch.elect_one``.
        aliases: Modules by what stands for them.

    Raises:
        ToolchainError: The package has no such name.
    """
    first, *rest = path.split(".")
    module = aliases.get(first, first)
    found: Any = importlib.import_module(module)
    for part in rest:
        if not hasattr(found, part) and inspect.ismodule(found):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except ImportError as error:
                raise ToolchainError(f"{module} has no {path}") from error
        if not hasattr(found, part):
            raise ToolchainError(f"{module} has no {path}")
        found = getattr(found, part)
    return found
