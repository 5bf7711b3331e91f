"""The same operations on Python ints and bools, which is how rank-0 integer tiles are held."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from cuda.tile import _datatype as dt

from mla_var3.interpreter.program import Env, Lowering, Runtime, Step, line_of
from mla_var3.interpreter.report import SourceLine
from mla_var3.interpreter.values import wrap_int

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


def _remainder(a: int, b: int) -> int:
    """The remainder with the sign of the dividend, as in C."""
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


_ARITH: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
    "floordiv": operator.floordiv,
    "cdiv": lambda a, b: -(-a // b),
    "c_mod": _remainder,
}


def converter(dtype: Any) -> Callable[[Any], Any]:
    """Returns the conversion of a Python number to a held scalar."""
    if dt.is_boolean(dtype):
        return bool
    return lambda value: wrap_int(int(value), dtype)


def binary_arith(op: Any, lo: Lowering) -> Step:
    """Integer arithmetic, wrapped to the width."""
    a, b, r = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var)
    dtype, fn = op.result_var.get_type().dtype, _ARITH[op.fn]
    divides, where = op.fn in ("floordiv", "cdiv", "c_mod"), line_of(op)
    low, high = dt.IntegerInfo(dtype).min, dt.IntegerInfo(dtype).max

    def step(env: Env, rt: Runtime) -> None:
        value = fn(env[a], env[b])
        env[r] = value if low <= value <= high else wrap_int(value, dtype)

    if not divides:
        return step

    def checked(env: Env, rt: Runtime) -> None:
        if env[b] == 0:
            rt.log.add(
                "division-by-zero",
                where,
                f"block {rt.block} divides an integer by zero, which has no defined result",
            )
            env[r] = wrap_int(rt.int_poison, dtype)
            return
        step(env, rt)

    return checked


def unary(op: Any, lo: Lowering) -> Step:
    """Negation, absolute value, inversion."""
    x, r, dtype = lo.slot(op.operand), lo.slot(op.result_var), op.result_var.get_type().dtype
    if dt.is_boolean(dtype):

        def invert(env: Env, rt: Runtime) -> None:
            env[r] = not env[x]

        return invert
    functions: dict[str, Callable[[int], int]] = {"neg": operator.neg, "abs": abs}
    fn = functions.get(op.fn, operator.invert)

    def step(env: Env, rt: Runtime) -> None:
        env[r] = wrap_int(fn(env[x]), dtype)

    return step


def compare(op: Any, lo: Lowering) -> Step:
    """Comparison with a scalar result; the operands may be rank-0 floats."""
    a, b, r, fn = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var), _COMPARE[op.fn]

    def step(env: Env, rt: Runtime) -> None:
        env[r] = bool(fn(env[a], env[b]))

    return step


def bitwise(op: Any, lo: Lowering) -> Step:
    """Bitwise and, or, exclusive or; of bools too."""
    a, b, r = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var)
    fn = {"and_": operator.and_, "or_": operator.or_, "xor": operator.xor}[op.fn]

    def step(env: Env, rt: Runtime) -> None:
        env[r] = fn(env[a], env[b])

    return step


def shift(op: Any, lo: Lowering) -> Step:
    """Shifts, wrapped to the width."""
    a, b, r = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var)
    dtype, where = op.result_var.get_type().dtype, line_of(op)
    fn = operator.lshift if op.fn == "lshift" else operator.rshift

    def step(env: Env, rt: Runtime) -> None:
        count = env[b]
        if not 0 <= count < dtype.bitwidth:
            report_shift(rt, where, dtype.bitwidth)
            env[r] = wrap_int(rt.int_poison, dtype)
            return
        env[r] = wrap_int(fn(env[a], count), dtype)

    return step


def report_shift(rt: Runtime, where: SourceLine, width: int) -> None:
    """Reports a shift count outside the width of the value."""
    rt.log.add(
        "shift-range",
        where,
        f"block {rt.block} shifts a {width}-bit integer by a count outside [0, {width}), "
        "which has no defined result",
    )
