"""Arithmetic on rank-0 integer and bool tiles, which the interpreter holds as Python numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from cuda.tile import _datatype as dt

from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.ops.undetermined import undefined_result
from mla_var3.interpreter.program import Env, Runtime, Step, line_of
from mla_var3.interpreter.taint import Origin, made
from mla_var3.interpreter.values import wrap_int

_ONE = torch.tensor(True)

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
    low, high = dt.IntegerInfo(dtype).min, dt.IntegerInfo(dtype).max
    overflow = Origin("index-overflow", line_of(op), f"an {dtype}")
    intended = not dt.is_signed(dtype)

    def step(env: Env, rt: Runtime) -> None:
        value = fn(env[a], env[b])
        if low <= value <= high:
            env[r] = value
            return
        env[r] = wrap_int(value, dtype)
        if not intended:
            rt.taints[r] = made(rt, _ONE, overflow)

    return step


def division(op: Any, lo: Lowering, dtype: Any) -> Step:
    """Integer division; by zero it has no defined result."""
    b, r = lo.slot(op.rhs), lo.slot(op.result_var)
    step = binary_arith(op, lo)
    fail = undefined_result(r, Origin("division-by-zero", line_of(op)), lo)

    def checked(env: Env, rt: Runtime) -> None:
        if env[b] == 0:
            fail(rt, _ONE)
            env[r] = wrap_int(rt.int_poison, dtype)
            return
        step(env, rt)

    return checked


def unary(op: Any, lo: Lowering) -> Step:
    """Negation, absolute value, inversion."""
    x, r, dtype = lo.slot(op.operand), lo.slot(op.result_var), op.result_var.get_type().dtype
    if dt.is_boolean(dtype) and op.fn != "abs":

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
    dtype = op.result_var.get_type().dtype
    fn = operator.lshift if op.fn == "lshift" else operator.rshift
    fail = undefined_result(r, Origin("shift-range", line_of(op)), lo)

    def step(env: Env, rt: Runtime) -> None:
        count = env[b]
        if not 0 <= count < dtype.bitwidth:
            fail(rt, _ONE)
            env[r] = wrap_int(rt.int_poison, dtype)
            return
        env[r] = wrap_int(fn(env[a], count), dtype)

    return step
