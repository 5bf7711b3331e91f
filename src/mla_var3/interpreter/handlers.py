"""Table of the handlers of typed-IR operations, by opcode; the modules of ``ops`` fill it.

A handler gets the operation and the ``Lowering`` and returns the closure that executes it, or a
pair of the closure and its taint rule, or None for an operation that does nothing here (tokens).
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
