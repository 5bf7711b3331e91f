"""Keeps the places of operations while the CuTe DSL traces a kernel, which takes half the time.

The DSL gives each operation the line and column of the call that made it. It reads the position
table of the caller from its beginning for that, and judges each frame on the way by its file, for
every operation anew. An instruction has one place, however often it runs, and a function one file.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def keep_places(op: ModuleType) -> None:
    """Let the DSL ask once for the place of an instruction, and once for the file of a function.

    What is traced stays the same. A part that another release of the DSL lacks is left out.

    Args:
        op: The module ``cutlass._mlir_helpers.op``; changed for the rest of this process.
    """
    kept: tuple[tuple[str, Callable[[Any], Any], Callable[[Any], Any]], ...] = (
        ("_is_framework_stack_frame", lambda frame: frame.f_code, _code),
        ("_fast_frameinfo", lambda frame: frame.f_code, _instruction),
        ("_get_location_from_frame_info", lambda info: info, _in_context(op)),
    )
    for name, owner, key in kept:
        if (asked := getattr(op, name, None)) is not None:
            setattr(op, name, _once(asked, owner, key))


def _once(
    asked: Callable[[Any], Any], owner: Callable[[Any], Any], key: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """A function of one argument that asks once per key, and holds on to what the key is of."""
    known: dict[Any, tuple[Any, Any]] = {}

    def answer(argument: Any) -> Any:
        where = key(argument)
        if (found := known.get(where)) is None:
            # An identity is told apart only as long as its object lives.
            found = known[where] = owner(argument), asked(argument)
        return found[1]

    return answer


def _code(frame: FrameType) -> int:
    return id(frame.f_code)  # By value, equal functions of two files would be one.


def _instruction(frame: FrameType) -> tuple[int, int]:
    return id(frame.f_code), frame.f_lasti


def _in_context(op: ModuleType) -> Callable[[Any], tuple[int, Any]]:
    """Key of a place: locations belong to a context."""
    return lambda info: (id(info), op.ir.Context.current)
