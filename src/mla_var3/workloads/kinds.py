"""Refuses values of fields that are not of the types which their dataclass declares."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def check_kinds(owner: type, values: Mapping[str, Any], error: type[Exception]) -> None:
    """Raise ``error`` for the first value that is not of the type its field is declared with.

    Args:
        owner: The dataclass that declares the fields.
        values: Values by field, as a file states them.
        error: What to raise.
    """
    for name, value in values.items():
        allowed = _declared(owner)[name]
        if allowed and type(value) not in allowed:
            names = " or ".join(kind.__name__ for kind in allowed if kind is not type(None))
            raise error(f"{name}={value!r} is of type {type(value).__name__}, not {names}")


@functools.cache
def _declared(owner: type) -> dict[str, tuple[type, ...]]:
    """The plain types that each field takes; none where it takes others too."""
    return {name: _kinds(hint) for name, hint in get_type_hints(owner).items()}


def _kinds(hint: Any) -> tuple[type, ...]:
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return tuple(dict.fromkeys(map(type, arguments)))
    if not arguments:
        plain = {int: (int,), float: (float, int), bool: (bool,), str: (str,),
                 type(None): (type(None),)}  # fmt: skip
        return plain.get(hint, ())
    if get_origin(hint) not in (Union, UnionType):
        return ()
    found = [_kinds(one) for one in arguments]
    return tuple(dict.fromkeys(itertools.chain(*found))) if all(found) else ()
