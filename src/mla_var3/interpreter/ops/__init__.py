"""Handlers of typed-IR operations, one per opcode: each builds the closure that executes it.

A handler gets the operation and the ``Lowering`` and returns the closure, or a pair of the closure
and its taint rule, or None for an operation that does nothing here (tokens).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HANDLERS: dict[str, Callable[[Any, Any], Any]] = {}


def handler(opcode: str) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Registers the handler of an opcode."""

    def register(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        if opcode in HANDLERS:
            raise ValueError(f"opcode {opcode!r} has two handlers")
        HANDLERS[opcode] = function
        return function

    return register


from mla_var3.interpreter.ops import (  # noqa: E402  (they register themselves)
    access,
    arithmetic,
    atomics,
    control,
    matrix,
    pointers,
    scalars,
    shapes,
    views,
)

__all__ = [
    "HANDLERS",
    "access",
    "arithmetic",
    "atomics",
    "control",
    "handler",
    "matrix",
    "pointers",
    "scalars",
    "shapes",
    "views",
]
