"""Notes which outcomes a kernel's integer operations and arguments had, for check coverage.

A minimum that never took its other operand, a remainder that never wrapped or a mask that never
masked may be anything else and give the same values: what no launch exercises, no launch checks.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from cuda.tile import _datatype as dt

from mla_var3.interpreter.launch_report import Facts

if TYPE_CHECKING:
    from mla_var3.interpreter.program import Env, Runtime, SourceLine, Step
    from mla_var3.interpreter.slots import Slots

#: What happened, from both operands.
Judge = Callable[[Any, Any], Any]
_CUTS: dict[str, Judge] = {"first": lambda a, b: a < b, "second": lambda a, b: b < a}
_RAISES: dict[str, Judge] = {"first": lambda a, b: a > b, "second": lambda a, b: b > a}
_WAYS: dict[str, tuple[str, dict[str, Judge]]] = {
    "min": ("minimum", _CUTS),
    "max": ("maximum", _RAISES),
    "c_mod": ("remainder", {"beyond": lambda a, b: (a >= b) | (a < 0)}),
    "floordiv": ("quotient", {"later": lambda a, b: (a >= b) | (a < 0)}),
    "cdiv": ("quotient", {"later": lambda a, b: a > b}),
}


def place_of(where: SourceLine, column: int | None = None) -> str:
    """A line as facts name it: its file without the folder, its number, and what stands there."""
    file, line = where
    at = "" if column is None else f":{column}"
    text = " ".join(linecache.getline(file, line).split())
    return f"{file.rpartition('/')[2]}:{line}{at}: {text}"


def turn(index: int) -> str:
    """An index: the first, the next, or a later one."""
    return "first" if index <= 0 else "next" if index == 1 else "later"


def noted(step: Step, op: Any, lo: Slots, loc: Any) -> Step:
    """Returns a step that also notes which way a whole number or a comparison went."""
    if lo.local is not None:
        return step
    if op.op == "raw_cmp":
        return _compared(step, op, lo, loc)
    if op.op != "raw_binary_arith" or op.fn not in _WAYS:
        return step
    if op.fn == "c_mod":  # Python's remainder asks for signs, which nobody wrote.
        lo.signs.add(_place(loc))
    if dt.is_float(op.result_var.get_type().dtype):
        return step
    kind, ways = _WAYS[op.fn]
    return _judging(step, (kind, _place(loc)), ways, (lo.slot(op.lhs), lo.slot(op.rhs)))


def _place(loc: Any) -> str:
    return place_of((loc.filename or "<unknown>", loc.line), loc.col)


def _judging(
    step: Step, key: tuple[str, str], ways: dict[str, Judge], slots: tuple[int, int]
) -> Step:
    a, b = slots

    def judge(env: Env, rt: Runtime) -> None:
        step(env, rt)
        seen = rt.facts.setdefault(key, set())
        if len(seen) < len(ways):
            seen.update(way for way, went in ways.items() if _any(went(env[a], env[b])))

    return judge


def _any(value: Any) -> bool:
    return bool(value.any()) if isinstance(value, torch.Tensor) else bool(value)


def _compared(step: Step, op: Any, lo: Slots, loc: Any) -> Step:
    place, r = _place(loc), lo.slot(op.result_var)
    key = ("comparison", place)

    def compare(env: Env, rt: Runtime) -> None:
        step(env, rt)
        if place in lo.signs:  # Known once all is lowered: it may come before the remainder.
            return
        seen = rt.facts.setdefault(key, set())
        if len(seen) == 2:
            return
        held = env[r]
        if _any(held):
            seen.add("held")
        if not (held.all() if isinstance(held, torch.Tensor) else held):
            seen.add("failed")

    return compare


def of_arguments(names: Iterable[str], args: Sequence[Any]) -> Facts:
    """Which values each argument of a launch had, and each extent of its arrays."""
    found: Facts = {}
    for parameter, value in zip(names, args, strict=True):
        if isinstance(value, torch.Tensor):
            for axis, extent in enumerate(value.shape):
                found[("extent", f"axis {axis} of {parameter}")] = {str(extent)}
        elif isinstance(value, bool | int | float):
            found[("argument", parameter)] = {repr(value)}
    return found
